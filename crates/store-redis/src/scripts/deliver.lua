-- Adds mail to a mailbox. KEYS[1] is the mailbox. ARGV: 1 token, 2 server, 3 mail, 4 maximum messages, 5 maximum bytes, 6
-- lifetime in milliseconds. The token is the id of the mail, so that a repetition changes nothing.
local mailbox, waiting = KEYS[1], KEYS[1] .. ':w'
if redis.call('HEXISTS', waiting, ARGV[1]) == 1 or redis.call('EXISTS', mailbox .. ':c:' .. ARGV[1]) == 1 then
  return { 'ok' }
end
local bytes = tonumber(redis.call('HGET', waiting, 'bytes') or 0) + #ARGV[3]
if redis.call('XLEN', mailbox) >= tonumber(ARGV[4]) or bytes > tonumber(ARGV[5]) then
  return { 'full' }
end
local id = redis.call('XADD', mailbox, '*', 't', ARGV[1], 's', ARGV[2], 'd', ARGV[3])
redis.call('HSET', waiting, ARGV[1], id .. ' ' .. #ARGV[3], 'bytes', bytes)
redis.call('PEXPIRE', mailbox, ARGV[6])
redis.call('PEXPIRE', waiting, ARGV[6])
return { 'ok' }
