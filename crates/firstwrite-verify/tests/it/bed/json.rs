//! JSON as it was written: numbers keep their digits, and members that come twice are seen.

/// Deeper nesting is taken for no JSON.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    /// `null`, `true` or `false`.
    Word(&'static str),
    /// As it was spelt.
    Number(String),
    String(String),
    Array(Vec<Json>),
    /// In the order in which they stand, also those of one name.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Nothing if it is no JSON.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(DEPTH_MAX)?;
        reader.skip_space();
        (reader.at == text.len()).then_some(value)
    }

    /// A member of an object, the last one of its name.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                members.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value)
            }
            Self::Word(_) | Self::Number(_) | Self::String(_) | Self::Array(_) => None,
        }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Option<Json> {
        self.skip_space();
        match self.text.get(self.at)? {
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.array(depth.checked_sub(1)?),
            b'"' => self.string().map(Json::String),
            b'-' | b'0'..=b'9' => self.number(),
            _ => {
                let words = ["null", "true", "false"];
                let word =
                    words.into_iter().find(|w| self.text[self.at..].starts_with(w.as_bytes()))?;
                self.at += word.len();
                Some(Json::Word(word))
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        let mut members = Vec::new();
        self.at += 1;
        if self.took(b'}') {
            return Some(Json::Object(members));
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            if !self.took(b':') {
                return None;
            }
            members.push((name, self.value(depth)?));
            if self.took(b'}') {
                return Some(Json::Object(members));
            }
            if !self.took(b',') {
                return None;
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        let mut values = Vec::new();
        self.at += 1;
        if self.took(b']') {
            return Some(Json::Array(values));
        }
        loop {
            values.push(self.value(depth)?);
            if self.took(b']') {
                return Some(Json::Array(values));
            }
            if !self.took(b',') {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        let from = self.at;
        if self.text.get(from) != Some(&b'"') {
            return None;
        }
        self.at += 1;
        while *self.text.get(self.at)? != b'"' {
            self.at += if self.text[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        // What escapes mean is left to a parser that knows.
        serde_json::from_slice(&self.text[from..self.at]).ok()
    }

    fn number(&mut self) -> Option<Json> {
        let from = self.at;
        let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        self.at += self.text[from..].iter().take_while(|byte| is_part(byte)).count();
        let text = std::str::from_utf8(&self.text[from..self.at]).ok()?;
        is_number(text).then(|| Json::Number(text.to_owned()))
    }

    fn took(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.at += self.text[self.at..].iter().take_while(is_space).count();
    }
}

/// The grammar of numbers, which knows no leading zeros and no bare points.
fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mantissa = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    are_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(are_digits)
        && exponent.is_none_or(are_digits)
}
