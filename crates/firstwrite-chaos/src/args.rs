//! The words after a task's name.
//!
//! Taking words out one by one and refusing what is left over is all these tasks need of a command line.

use std::fmt;
use std::str::FromStr;

/// Arguments typed after the task's name, minus those that were already taken.
#[derive(Debug)]
pub struct Args {
    words: Vec<String>,
}

/// The command line made no sense; the message says why.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl Args {
    /// The words as they were typed.
    pub fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    /// True if the first word asks for help.
    pub fn ask_for_help(&self) -> bool {
        self.words.first().is_some_and(|word| word == "--help" || word == "-h")
    }

    /// Takes `--name`; says whether it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// Takes `--name VALUE` or `--name=VALUE`.
    pub fn value<T: FromStr>(&mut self, name: &str) -> anyhow::Result<Option<T>> {
        let joined = format!("{name}=");
        let Some(at) = self.words.iter().position(|word| word == name || word.starts_with(&joined))
        else {
            return Ok(None);
        };
        let word = self.words.remove(at);
        let text = match word.strip_prefix(&joined) {
            Some(text) => text.to_owned(),
            None if at < self.words.len() => self.words.remove(at),
            None => return Err(Usage(format!("{name} needs a value")).into()),
        };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Usage(format!("`{text}` is no value for {name}")).into()),
        }
    }

    /// Takes the first word, whatever it is.
    pub fn word(&mut self) -> Option<String> {
        if self.words.is_empty() { None } else { Some(self.words.remove(0)) }
    }

    /// Takes all that is left, to pass it on.
    pub fn rest(self) -> Vec<String> {
        self.words
    }

    /// Refuses arguments that the task did not take.
    pub fn finish(self) -> anyhow::Result<()> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(Usage(format!("`{word}` is not understood here")).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn flags_and_values_are_taken_in_any_order() {
        let mut args = args("--kills 3 --release --seed=7");
        assert!(args.flag("--release"));
        assert_eq!(args.value::<u64>("--seed").unwrap(), Some(7));
        assert_eq!(args.value::<u64>("--kills").unwrap(), Some(3));
        assert_eq!(args.value::<u64>("--seconds").unwrap(), None);
        args.finish().unwrap();
    }

    #[test]
    fn a_word_nobody_takes_is_refused() {
        assert!(args("--kils 3").finish().unwrap_err().is::<Usage>());
    }

    #[test]
    fn a_value_that_is_missing_or_no_number_is_refused() {
        assert!(args("--kills").value::<u64>("--kills").unwrap_err().is::<Usage>());
        assert!(args("--kills many").value::<u64>("--kills").unwrap_err().is::<Usage>());
    }
}
