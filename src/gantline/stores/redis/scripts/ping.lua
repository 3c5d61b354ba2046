-- ping(now): answers the time
return clock(ARGV[1])
