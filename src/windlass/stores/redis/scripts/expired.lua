-- expired(now, offset, limit): answers the ids of runs whose lease is over, the longest ago first
return call('ZRANGEBYSCORE', LEASES, '-inf', clock(ARGV[1]), 'LIMIT', ARGV[2], ARGV[3])
