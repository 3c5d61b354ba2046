-- last_event(): the sequence number handed out last
return tonumber(call('GET', P .. 'last-event') or 0)
