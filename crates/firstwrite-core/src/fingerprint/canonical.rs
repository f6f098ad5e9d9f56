//! JSON text to its canonical form, in one pass and without a tree.
//!
//! The form is not JSON: it is a stream of tags, each followed by its payload. Tags are the bytes
//! UTF-8 never uses and payloads are UTF-8, so the next tag ends a payload and two documents share a
//! form only if they are equal: members sorted by name, strings by value, numbers by exact decimal
//! value. What has no such form (duplicate names, lone surrogates, too deep, not JSON) is refused
//! as a whole; the caller then takes the bytes as they are.

use super::number;

/// A member's name; its value follows.
pub(super) const NAME: u8 = 0xf5;
/// `null`.
pub(super) const NULL: u8 = 0xf6;
/// `true`.
pub(super) const TRUE: u8 = 0xf7;
/// `false`.
pub(super) const FALSE: u8 = 0xf8;
/// A number, as [`number`] writes it.
pub(super) const NUMBER: u8 = 0xf9;
/// A string's decoded characters.
pub(super) const STRING: u8 = 0xfa;
/// The values up to the matching [`END`].
pub(super) const ARRAY: u8 = 0xfb;
/// The names and values up to the matching [`END`].
pub(super) const OBJECT: u8 = 0xfc;
/// The end of an array or object.
pub(super) const END: u8 = 0xfd;
/// Stands where the rules ignore an array's element, so that later ones keep their index.
pub(super) const IGNORED: u8 = 0xfe;
/// Stands where the rules select a value that is not there; `null` is something else.
pub(super) const MISSING: u8 = 0xff;

/// Containers inside containers; past any sensible request, well within any stack.
const DEPTH_MAX: usize = 64;

/// Appends the canonical form of `text`, or appends nothing and returns false.
pub(super) fn append(text: &[u8], out: &mut Vec<u8>) -> bool {
    // Checked once here, so that strings can be copied by the run.
    if std::str::from_utf8(text).is_err() {
        return false;
    }
    let start = out.len();
    let mut reader = Reader { text, at: 0, out, members: Vec::new(), scratch: Vec::new() };
    let is_whole = reader.document().is_some();
    if !is_whole {
        out.truncate(start);
    }
    is_whole
}

/// Returns the end of the payload that starts at `from`.
pub(super) fn payload_end(form: &[u8], from: usize) -> usize {
    form[from..].iter().position(|&byte| byte >= NAME).map_or(form.len(), |length| from + length)
}

/// Returns the end of the value that starts at `from`.
pub(super) fn value_end(form: &[u8], from: usize) -> usize {
    let mut open = 0_usize;
    let mut at = from;
    loop {
        match form[at] {
            ARRAY | OBJECT => open += 1,
            END => open -= 1,
            _ => {}
        }
        at = payload_end(form, at + 1);
        if open == 0 {
            return at;
        }
    }
}

/// A member already written, by its place in the output.
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Member {
    fn name<'o>(&self, out: &'o [u8]) -> &'o [u8] {
        &out[self.start + 1..self.name_end]
    }
}

/// `None` anywhere below means that the text has no canonical form.
struct Reader<'t, 'o> {
    text: &'t [u8],
    at: usize,
    out: &'o mut Vec<u8>,
    /// The members of all objects that are still open, innermost last.
    members: Vec<Member>,
    scratch: Vec<u8>,
}

impl Reader<'_, '_> {
    fn document(&mut self) -> Option<()> {
        self.space();
        self.value(0)?;
        self.space();
        (self.at == self.text.len()).then_some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => {
                self.out.push(STRING);
                self.string()
            }
            b'-' | b'0'..=b'9' => {
                self.out.push(NUMBER);
                self.at += number::append(&self.text[self.at..], self.out)?;
                Some(())
            }
            b'{' if depth < DEPTH_MAX => self.object(depth + 1),
            b'[' if depth < DEPTH_MAX => self.array(depth + 1),
            b'n' => self.literal(b"null", NULL),
            b't' => self.literal(b"true", TRUE),
            b'f' => self.literal(b"false", FALSE),
            _ => None,
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.out.push(OBJECT);
        let first_member = self.members.len();
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
        } else {
            loop {
                self.member(depth)?;
                if self.is_last(b'}')? {
                    break;
                }
            }
        }
        self.sort_members(first_member)?;
        self.out.push(END);
        Some(())
    }

    fn member(&mut self, depth: usize) -> Option<()> {
        let start = self.out.len();
        self.out.push(NAME);
        if self.peek()? != b'"' {
            return None;
        }
        self.string()?;
        let name_end = self.out.len();
        self.space();
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        self.space();
        self.value(depth)?;
        self.members.push(Member { start, name_end, end: self.out.len() });
        Some(())
    }

    /// Puts the members of the innermost object in order; `None` if two share a name.
    fn sort_members(&mut self, first_member: usize) -> Option<()> {
        let out = &mut *self.out;
        let members = &mut self.members[first_member..];
        // Most programs print a struct's members in one order; few print them sorted.
        if !members.is_sorted_by(|a, b| a.name(out) < b.name(out)) {
            let start = members[0].start;
            members.sort_unstable_by(|a, b| a.name(out).cmp(b.name(out)));
            if members.windows(2).any(|pair| pair[0].name(out) == pair[1].name(out)) {
                return None;
            }
            self.scratch.clear();
            for member in &*members {
                self.scratch.extend_from_slice(&out[member.start..member.end]);
            }
            out.truncate(start);
            out.extend_from_slice(&self.scratch);
        }
        self.members.truncate(first_member);
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.out.push(ARRAY);
        self.space();
        if self.peek()? == b']' {
            self.at += 1;
        } else {
            loop {
                self.value(depth)?;
                if self.is_last(b']')? {
                    break;
                }
            }
        }
        self.out.push(END);
        Some(())
    }

    /// Steps over the comma or the closing bracket after an element.
    fn is_last(&mut self, bracket: u8) -> Option<bool> {
        self.space();
        let found = self.peek()?;
        self.at += 1;
        if found == bracket {
            return Some(true);
        }
        self.space();
        (found == b',').then_some(false)
    }

    /// Appends the string whose opening quote is next.
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let run = rest.iter().position(|&byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
            self.out.extend_from_slice(&rest[..run]);
            self.at += run + 1;
            match rest[run] {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let letter = self.peek()?;
        self.at += 1;
        let character = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.code_point()?,
            _ => return None,
        };
        self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Some(())
    }

    /// The character of one `\u` escape, or of two that make a surrogate pair.
    fn code_point(&mut self) -> Option<char> {
        let unit = self.hex()?;
        if !(0xd800..0xdc00).contains(&unit) {
            // A low surrogate without its high one is no character.
            return char::from_u32(unit);
        }
        if !self.text[self.at..].starts_with(b"\\u") {
            return None;
        }
        self.at += 2;
        let low = self.hex()?;
        if !(0xdc00..0xe000).contains(&low) {
            return None;
        }
        char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
    }

    fn literal(&mut self, word: &[u8], tag: u8) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            self.out.push(tag);
        })
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests;
