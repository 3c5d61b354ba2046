-- format(version): answers the version of the layout that is there, and marks an empty place as ours
call('SET', P .. 'format', ARGV[1], 'NX')
return call('GET', P .. 'format')
