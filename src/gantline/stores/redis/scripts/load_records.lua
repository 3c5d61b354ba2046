-- load_records(per record: namespace, key, expires ('': never), record)
for index = 1, #ARGV, 4 do
    local namespace, key, expires, record = unpack(ARGV, index, index + 3)
    if call('HSETNX', P .. 'records:' .. namespace, key, record) == 1 then
        note_record(namespace, key)
        if expires ~= '' then
            call('ZADD', RECORD_ENDS, expires, end_member(namespace, key))
        end
    end
end
