-- The end of streams and sessions.

local function forget_stream(ordinal)
  local watchers = redis.call('HGET', head_key(ordinal), 'k')
  redis.call('UNLINK', head_key(ordinal), log_key(ordinal))
  redis.call('ZREM', session .. ':x', ordinal)
  wake_watchers(ordinal, watchers)
end

-- Forgets the streams of the session and its push queue.
local function forget_streams()
  for _, ordinal in ipairs(redis.call('ZRANGE', session .. ':x', 0, -1)) do
    forget_stream(ordinal)
  end
  redis.call('UNLINK', session .. ':x', session .. ':q', session .. ':qc', session .. ':g')
end

-- The nodes other than this one that have a view.
local function other_views()
  local seen, nodes = { [me] = true }, {}
  for _, node in ipairs(redis.call('HVALS', session .. ':v')) do
    if not seen[node] then
      seen[node] = true
      nodes[#nodes + 1] = node
    end
  end
  return nodes
end

local function wake_views(nodes)
  for _, node in ipairs(nodes) do
    wake(node, 's', me)
  end
end

-- Ends the session. Returns the other nodes that had a view.
local function end_session()
  local nodes = other_views()
  forget_streams()
  redis.call('UNLINK', session, session .. ':v')
  wake_views(nodes)
  return nodes
end
