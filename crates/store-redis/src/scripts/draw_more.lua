-- Draws an epoch, or the next ARGV[5] ordinals.
if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
skip_lost_numbers()
if ARGV[5] == '' then
  return { 'ok', draw_epoch() }
end
local after, last = draw_ordinals(ARGV[5])
return { 'ok', after, last }
