-- Epochs and ordinals, for `create`, `open` and `draw`. SKIPPED is defined before this file.

local function store_process()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end

-- A restarted server may have lost its last writes, and with them numbers that clients hold. So the first draw after a
-- restart skips numbers (RST-02). Revisions are skipped too: a view ignores a record that seems older than the one it has.
local function skip_lost_numbers()
  local process = store_process()
  local known = redis.call('HGET', session, 'run')
  if known ~= process then
    redis.call('HSET', session, 'run', process)
    redis.call('HINCRBY', session, 'ep', SKIPPED)
    redis.call('HINCRBY', session, 'ord', SKIPPED)
    redis.call('HINCRBY', session, 'rev', SKIPPED)
  end
end

local function draw_epoch()
  return redis.call('HINCRBY', session, 'ep', 1)
end

-- The ordinals after the first result, up to the second one. Both are texts: ordinals have 64 bits.
local function draw_ordinals(count)
  local issued = redis.call('HMGET', session, 'ord', 'hw')
  local after, highest = issued[1], issued[2] or '0'
  if #highest > #after or (#highest == #after and highest > after) then
    redis.call('HSET', session, 'ord', highest)
    after = highest
  end
  redis.call('HINCRBY', session, 'ord', count)
  return after, redis.call('HGET', session, 'ord')
end

-- Registers a view of this node. Beyond 256 views, forgets the oldest, whose nodes ended long ago.
local function add_view(epoch)
  local key = session .. ':v'
  redis.call('HSET', key, epoch, me)
  if redis.call('HLEN', key) > 256 then
    local epochs = redis.call('HKEYS', key)
    table.sort(epochs, function(a, b) return tonumber(a) < tonumber(b) end)
    for at = 1, #epochs - 256 do
      redis.call('HDEL', key, epochs[at])
    end
  end
end
