-- Registers or removes this node as a watcher of a stream. ARGV: 5 ordinal, 6 '1' to watch.
local key = head_key(ARGV[5])
local head = redis.call('HMGET', key, 'e', 'k')
if not head[1] then
  return { 'unknown' }
end
local nodes = {}
for node in string.gmatch(head[2] or '', '%S+') do
  if node ~= me then
    nodes[#nodes + 1] = node
  end
end
if ARGV[6] == '1' then
  nodes[#nodes + 1] = me
end
redis.call('HSET', key, 'k', table.concat(nodes, ' '))
return { 'ok' }
