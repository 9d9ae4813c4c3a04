-- Forgets one stream (ARGV[5]), or all of them and the push queue.
if ARGV[5] ~= '' then
  forget_stream(ARGV[5])
else
  forget_streams()
  redis.call('HDEL', session, 'qb')
end
return { 'ok' }
