-- The bound of the GETs of a session, for `listen` and `restore_view`.

-- Removes the oldest GETs beyond `max` and wakes their nodes, which close them.
local function limit_listeners(max)
  local listeners = session .. ':g'
  local over = redis.call('ZCARD', listeners) - max
  if over <= 0 then
    return
  end
  for _, member in ipairs(redis.call('ZRANGE', listeners, 0, over - 1)) do
    redis.call('ZREM', listeners, member)
    local ordinal, node = string.match(member, '^(.-):(.*)$')
    wake(node, 'l', ordinal)
  end
end
