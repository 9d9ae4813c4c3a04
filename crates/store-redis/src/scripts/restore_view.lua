-- Restores the view of this node: a server that was restarted may have lost its last writes. ARGV: 5 epoch of the view, then
-- the maximum of GETs, then the ordinals of all GETs of this node, oldest first. Does nothing if nothing was lost.
if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
skip_lost_numbers()
local epoch, listeners, open = ARGV[5], session .. ':g', {}
if redis.call('HEXISTS', session .. ':v', epoch) == 0 then
  add_view(epoch)
end
-- A question of this epoch was asked, so its answer is not unknown (S2C-04).
if tonumber(redis.call('HGET', session, 'ep')) < tonumber(epoch) then
  redis.call('HSET', session, 'ep', epoch)
end
for at = 7, #ARGV do
  local member = ARGV[at] .. ':' .. me
  open[member] = true
  -- An entry that is there keeps its place: another node may have a newer GET.
  if not redis.call('ZSCORE', listeners, member) then
    redis.call('ZADD', listeners, redis.call('HINCRBY', session, 'gseq', 1), member)
  end
end
for _, member in ipairs(redis.call('ZRANGE', listeners, 0, -1)) do
  if string.match(member, ':(.*)$') == me and not open[member] then
    redis.call('ZREM', listeners, member)
  end
end
limit_listeners(tonumber(ARGV[6]))
wake_listener()
return { 'ok', redis.call('HGET', session, 'bcast') or '0-0' }
