//! A Rust file taken apart into code, strings and comments, so that a rule about one is not misled by another.

/// The three parts of a file, each with its line numbers (from one).
#[derive(Debug, Default)]
pub(super) struct RustText {
    /// The lines of the file, with strings and comments blanked out.
    pub(super) code: Vec<String>,
    /// Contents of string literals, by the line they start on.
    pub(super) strings: Vec<(usize, String)>,
    /// Comments, one per line; the slashes are left in.
    pub(super) comments: Vec<(usize, String)>,
}

/// Walks over the characters and keeps the line.
struct Walk<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    parts: RustText,
    /// The code of the present line.
    code: String,
}

impl RustText {
    pub(super) fn of(text: &str) -> Self {
        let code = String::new();
        let mut walk = Walk { rest: text.chars().peekable(), parts: Self::default(), code };
        while let Some(c) = walk.rest.next() {
            walk.step(c);
        }
        if !walk.code.is_empty() {
            walk.end_line();
        }
        walk.parts
    }

    /// The line on which the tests at the end of the file begin.
    pub(super) fn tests_from(&self) -> Option<usize> {
        let at = self.code.windows(2).position(|pair| {
            let module = pair[1].trim();
            pair[0].trim() == "#[cfg(test)]" && module.starts_with("mod ") && module.ends_with('{')
        })?;
        Some(at + 1)
    }
}

impl Walk<'_> {
    fn line(&self) -> usize {
        self.parts.code.len() + 1
    }

    fn end_line(&mut self) {
        self.parts.code.push(std::mem::take(&mut self.code));
    }

    fn step(&mut self, c: char) {
        match (c, self.rest.peek().copied()) {
            ('\n', _) => self.end_line(),
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.character(),
            ('r', Some('"' | '#')) if !self.is_in_word() => self.raw_string(),
            _ => self.code.push(c),
        }
    }

    /// Returns true if the current character continues a name; `br` and `cr` are prefixes, not names.
    fn is_in_word(&self) -> bool {
        let mut before = self.code.chars().rev();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        match before.next() {
            Some('b' | 'c') => before.next().is_some_and(is_word),
            Some(c) => is_word(c),
            None => false,
        }
    }

    fn line_comment(&mut self) {
        let mut text = String::from("/");
        while let Some(c) = self.rest.next_if(|&c| c != '\n') {
            text.push(c);
        }
        self.parts.comments.push((self.line(), text));
    }

    fn block_comment(&mut self) {
        let (mut depth, mut text) = (0, String::from("/"));
        while let Some(c) = self.rest.next() {
            match (c, self.rest.peek()) {
                ('\n', _) => {
                    self.parts.comments.push((self.line(), std::mem::take(&mut text)));
                    self.end_line();
                    continue;
                }
                // The first star is the one that the opening slash belongs to.
                ('*', _) if depth == 0 => depth = 1,
                ('/', Some('*')) => {
                    depth += 1;
                    text.push(c);
                    self.rest.next();
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.rest.next();
                    if depth == 0 {
                        break;
                    }
                }
                _ => {}
            }
            text.push(c);
        }
        self.parts.comments.push((self.line(), text));
    }

    fn string(&mut self) {
        let (line, mut text) = (self.line(), String::new());
        while let Some(c) = self.rest.next() {
            match c {
                '"' => break,
                '\n' => self.end_line(),
                '\\' => {
                    match self.rest.next() {
                        // The line goes on in the next one.
                        Some('\n') => self.end_line(),
                        Some('n' | 'r' | 't') => text.push(' '),
                        Some(escaped) => text.extend([c, escaped]),
                        None => break,
                    }
                    continue;
                }
                _ => {}
            }
            text.push(c);
        }
        self.code.push_str("\"\"");
        self.parts.strings.push((line, text));
    }

    fn raw_string(&mut self) {
        let mut hashes = 0;
        while self.rest.next_if_eq(&'#').is_some() {
            hashes += 1;
        }
        if self.rest.next_if_eq(&'"').is_none() {
            // A raw name such as `r#type`.
            self.code.push_str("r#");
            return;
        }
        let (line, end) = (self.line(), format!("\"{}", "#".repeat(hashes)));
        let mut text = String::new();
        for c in self.rest.by_ref() {
            text.push(c);
            if text.ends_with(&end) {
                text.truncate(text.len() - end.len());
                break;
            }
        }
        self.code.push_str("\"\"");
        for _ in text.matches('\n') {
            self.end_line();
        }
        self.parts.strings.push((line, text));
    }

    /// A character such as `'"'`, or the quote of a lifetime.
    fn character(&mut self) {
        let mut ahead = self.rest.clone();
        let is_character = match ahead.next() {
            Some('\\') => true,
            Some(_) => ahead.next() == Some('\''),
            None => false,
        };
        self.code.push('\'');
        if !is_character {
            return;
        }
        while let Some(c) = self.rest.next() {
            match c {
                '\'' => break,
                '\\' => drop(self.rest.next()),
                _ => {}
            }
        }
        self.code.push('\'');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_strings_and_comments_are_told_apart() {
        let text = concat!(
            "//! doc \"not a string\"\n",
            "let a = \"x // no comment\"; // yes\n",
            "let b = r#\"raw \"inner\"\nsecond\"#; let c = '\"'; let d: &'a str = br\"y\";\n",
            "/* block /* nested */ \"no\"\n still */ let e = '\\''; let r#type = \"a\\\"b\\\n  c\";\n",
            "last();",
        );
        let parts = RustText::of(text);
        assert_eq!(
            parts.strings,
            [
                (2, "x // no comment".to_owned()),
                (3, "raw \"inner\"\nsecond".to_owned()),
                (4, "y".to_owned()),
                (6, "a\\\"b  c".to_owned()),
            ]
        );
        assert_eq!(parts.comments[0], (1, "//! doc \"not a string\"".to_owned()));
        assert_eq!(parts.comments[1], (2, "// yes".to_owned()));
        assert_eq!(parts.comments[2].0, 5);
        assert_eq!(parts.code.len(), text.lines().count());
        assert_eq!(parts.code[0], "");
        assert!(parts.code[3].contains("let d: &'a str = b\"\";"), "{:?}", parts.code[3]);
        assert!(parts.code[5].contains("let e = ''; let r#type = "), "{:?}", parts.code[5]);
        assert_eq!(parts.code[7], "last();");
    }

    #[test]
    fn tests_at_the_end_are_found() {
        let parts = RustText::of("fn a() {}\n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(parts.tests_from(), Some(2));
        assert_eq!(RustText::of("#[cfg(test)]\nmod tests;\n").tests_from(), None);
    }
}
