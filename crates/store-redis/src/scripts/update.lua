-- Replaces the record (ARGV[6]) if its revision is ARGV[5], and wakes the other views.
local revision = redis.call('HGET', session, 'rev')
if not revision then
  return { 'gone' }
end
if tonumber(revision) == ARGV[5] + 1 and redis.call('HGET', session, 'rec') == ARGV[6] then
  return { 'ok', revision, other_views() } -- a repetition after a lost acknowledgement
end
if revision ~= ARGV[5] then
  return { 'conflict', revision, '' }
end
local nodes = other_views()
redis.call('HSET', session, 'rec', ARGV[6], 'rev', revision + 1, 'at', now())
wake_views(nodes)
return { 'ok', revision + 1, nodes }
