-- Removes mail from a mailbox. Returns 1 to exactly one caller. KEYS[1] is the mailbox. ARGV: 1 token of the mail, 2 the time in
-- milliseconds for which the token is remembered. Without it, a delivery that is repeated after a claim would add the mail again.
local mailbox, waiting = KEYS[1], KEYS[1] .. ':w'
local id, bytes = string.match(redis.call('HGET', waiting, ARGV[1]) or '', '^(%S+) (%d+)$')
if not id then
  return { 'ok', 0 }
end
redis.call('HDEL', waiting, ARGV[1])
redis.call('XDEL', mailbox, id)
redis.call('HINCRBY', waiting, 'bytes', -bytes)
redis.call('SET', mailbox .. ':c:' .. ARGV[1], '', 'PX', ARGV[2])
return { 'ok', 1 }
