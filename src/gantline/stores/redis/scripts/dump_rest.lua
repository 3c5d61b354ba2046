-- dump_rest(): the number of the last event, the version of the last record, the namespaces, then role and
-- leader of each
return {tonumber(call('GET', P .. 'last-event') or 0), tonumber(call('GET', P .. 'record-version') or 0),
        call('SMEMBERS', P .. 'namespaces'), unpack(call('HGETALL', P .. 'leaders'))}
