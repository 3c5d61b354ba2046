-- load_rest(number of the last event, version of the last record, then role and leader of each)
for name, number in pairs({['last-event'] = ARGV[1], ['record-version'] = ARGV[2]}) do
    if tonumber(number) > tonumber(call('GET', P .. name) or 0) then
        call('SET', P .. name, number)
    end
end
for index = 3, #ARGV, 2 do
    call('HSETNX', P .. 'leaders', ARGV[index], ARGV[index + 1])
end
