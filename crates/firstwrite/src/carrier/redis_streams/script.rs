//! Scripts that run inside Redis, each in one atomic step.
//!
//! `KEYS[2]` holds what is known of a wire key: the id of its entry, or `!` and a fence. The latter means that
//! neither that claim nor an earlier one has added it, and that no earlier one may. `ARGV[1]` is how long to
//! remember, in milliseconds, and `ARGV[2]` the claim's fence.

/// Adds the entry unless it is there, and returns its id.
///
/// Scripts are not undone when a command in them fails. So the mark comes first, which says that nothing
/// was added yet and stays true if adding fails; and what may be written once may be written again.
pub(super) const ADD: &str = "\
local seen = redis.call('GET', KEYS[2])
if seen and string.sub(seen, 1, 1) ~= '!' then return seen end
if seen and ARGV[2] < string.sub(seen, 2) then return 'shut out' end
redis.call('SET', KEYS[2], '!' .. ARGV[2], 'PX', ARGV[1])
local add = {'XADD', KEYS[1]}
if ARGV[6] == '0' then add[#add + 1] = 'NOMKSTREAM' end
if ARGV[7] ~= '0' then
  add[#add + 1] = 'MAXLEN'
  add[#add + 1] = '~'
  add[#add + 1] = ARGV[7]
end
add[#add + 1] = '*'
for at, name in ipairs({'wire_key', 'content_type', 'payload'}) do
  add[#add + 1] = name
  add[#add + 1] = ARGV[at + 2]
end
local id = redis.call(unpack(add))
if not id then return 'no stream' end
redis.call('SET', KEYS[2], id, 'PX', ARGV[1])
return id";

/// Returns the entry's id; or 1 if there is none, and marks that deliveries of earlier claims come too late; or
/// 0 if Redis may have forgotten it, since `ARGV[3]`, the time at which it may have been sent, is too long ago.
///
/// Half of the window is left for the difference between two clocks.
pub(super) const PROBE: &str = "\
local seen = redis.call('GET', KEYS[2])
if seen and string.sub(seen, 1, 1) ~= '!' then return seen end
local time = redis.call('TIME')
if time[1] * 1000 - ARGV[3] >= ARGV[1] / 2 then return 0 end
if not seen or string.sub(seen, 2) < ARGV[2] then
  redis.call('SET', KEYS[2], '!' .. ARGV[2], 'PX', ARGV[1])
end
return 1";
