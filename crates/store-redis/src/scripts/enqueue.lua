-- Adds messages to the push queue. ARGV: 5 maximum messages, 6 maximum bytes, 7 token, 8 last broadcast id or '', then
-- triples: broadcast id of the message or '', collapse key ('=' and the key, or ''), payload.
local max_messages, max_bytes, broadcast = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[8]
local state = redis.call('HMGET', session, 'rev', 'qb', 'qt', 'bcast')
if not state[1] then
  return { 'gone' }
end
local tokens = add_token(state[3], ARGV[7])
if not tokens then
  return { 'ok', 0, 0 }
end

local function is_later(a, b)
  local a_time, a_count = string.match(a, '^(%d+)-(%d+)$')
  local b_time, b_count = string.match(b, '^(%d+)-(%d+)$')
  a_time, b_time = tonumber(a_time), tonumber(b_time)
  return a_time > b_time or (a_time == b_time and tonumber(a_count) > tonumber(b_count))
end

local applied = state[4] or '0-0'
if broadcast ~= '' then
  if not is_later(broadcast, applied) then
    return { 'ok', 0, 0 } -- another node has added these broadcasts
  end
  redis.call('HSET', session, 'bcast', broadcast)
end
redis.call('HSET', session, 'qt', tokens)
local queue, keys = session .. ':q', session .. ':qc'
local bytes, length, dropped = tonumber(state[2] or 0), redis.call('LLEN', queue), 0
for at = 9, #ARGV, 3 do
  local id, key, payload = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_added = id ~= '' and not is_later(id, applied) -- by another node
  if not is_added and (key == '' or redis.call('HSETNX', keys, key, '') == 1) then
    redis.call('RPUSH', queue, struct.pack('>I2', #key) .. key .. payload)
    bytes, length = bytes + #payload, length + 1
    while length > max_messages or (bytes > max_bytes and length > 1) do
      local oldest = redis.call('LPOP', queue)
      local size = struct.unpack('>I2', oldest)
      redis.call('HDEL', keys, string.sub(oldest, 3, 2 + size))
      bytes, length, dropped = bytes - (#oldest - 2 - size), length - 1, dropped + 1
    end
  end
end
redis.call('HSET', session, 'qb', bytes)
wake_listener(broadcast ~= '') -- every node with a GET adds a broadcast, and binds it then
return { 'ok', dropped, redis.call('EXISTS', session .. ':g') * length }
