-- ping(now): returns the time
return clock(ARGV[1])
