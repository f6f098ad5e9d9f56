//! Arguments of a Redis command, stored contiguously.

/// Some args.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandArgs {
    bytes: Vec<u8>,
    /// End offset of each argument.
    ends: Vec<usize>,
}

impl CommandArgs {
    pub(super) fn with_capacity(args: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(args) }
    }

    pub(super) fn push(&mut self, word: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(word.as_ref());
        self.ends.push(self.bytes.len());
    }

    pub(super) fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| start + end));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Total size of the arguments.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<W: AsRef<[u8]>> FromIterator<W> for CommandArgs {
    fn from_iter<I: IntoIterator<Item = W>>(args: I) -> Self {
        let mut all = Self::default();
        args.into_iter().for_each(|word| all.push(word));
        all
    }
}

impl<W: AsRef<[u8]>, const N: usize> From<[W; N]> for CommandArgs {
    fn from(args: [W; N]) -> Self {
        args.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_put() {
        let mut args = CommandArgs::from(["a", "", "bc"]);
        args.append(&CommandArgs::from(["", "d"]));
        args.push(b"e");
        let all: Vec<&[u8]> = args.iter().collect();
        assert_eq!(all, [&b"a"[..], b"", b"bc", b"", b"d", b"e"]);
        assert_eq!((args.len(), args.bytes()), (6, 5));
    }
}
