-- Part of every script about a session. KEYS[1] is the hash of the session; its other keys begin with the same text, so
-- that a session is in one cluster slot. A script checks everything first and writes last: scripts do not roll back.
-- The first write of a script that stores data must be one that Redis refuses when its memory is full. Later writes of
-- the same script are never refused.
local session = KEYS[1]
local wake_channel, subject, me = ARGV[1], ARGV[2], ARGV[3]

-- The time of the store in milliseconds. ARGV[4] is 0 except in tests.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[4])
end

local function wake(node, kind, rest)
  redis.call('PUBLISH', wake_channel .. node, kind .. ' ' .. subject .. ' ' .. rest)
end

local function head_key(ordinal)
  return session .. ':h:' .. ordinal
end

local function log_key(ordinal)
  return session .. ':l:' .. ordinal
end

-- Wakes the nodes that watch a stream. `watchers` is the field `k` of its head.
local function wake_watchers(ordinal, watchers)
  for node in string.gmatch(watchers or '', '%S+') do
    wake(node, 'g', ordinal)
  end
end

-- Wakes the node of the newest GET if messages wait.
local function wake_listener(only_others)
  if redis.call('LLEN', session .. ':q') > 0 then
    local top = redis.call('ZREVRANGE', session .. ':g', 0, 0)[1]
    local node = top and string.match(top, ':(.*)$')
    if node and not (only_others and node == me) then
      wake(node, 'q', '')
    end
  end
end

-- Adds `token` to a list of recent tokens. False if it is there: the call is a repetition after a lost acknowledgement.
local function add_token(tokens, token)
  local kept, count = token, 1
  for other in string.gmatch(tokens or '', '%S+') do
    if other == token then
      return false
    end
    if count < 8 then
      kept, count = kept .. ' ' .. other, count + 1
    end
  end
  return kept
end
