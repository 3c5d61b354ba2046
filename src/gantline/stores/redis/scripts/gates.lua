-- gates(names): returns per gate when the next start would be due at an even rate, and until when it is closed
local result = {}
for index, name in ipairs(ARGV) do
    local next_at, rest, closed_until = read_gate(name)
    result[index] = {rest > 0 and next_at + 1 or next_at, closed_until}
end
return result
