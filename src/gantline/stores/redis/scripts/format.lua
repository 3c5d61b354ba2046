-- format(version): returns the version of the layout that is there, and marks an empty store as ours
call('SET', P .. 'format', ARGV[1], 'NX')
return call('GET', P .. 'format')
