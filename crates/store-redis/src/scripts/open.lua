-- Opens a view of a session. ARGV[5] is the number of ordinals in a block.
local record = redis.call('HMGET', session, 'rec', 'rev', 'at', 'own')
if not record[1] then
  return { 'gone' }
end
skip_lost_numbers()
local epoch = draw_epoch()
local after, last = draw_ordinals(ARGV[5])
add_view(epoch)
return { 'ok', record[1], record[2], epoch, after, last, math.max(0, now() - tonumber(record[3])), record[4] or '' }
