-- last_event(): the last sequence number
return tonumber(call('GET', P .. 'last-event') or 0)
