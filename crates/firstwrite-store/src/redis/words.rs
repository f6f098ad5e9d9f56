//! Arguments of a Redis command, stored contiguously.

/// Some words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    bytes: Vec<u8>,
    /// End offset of each argument.
    ends: Vec<usize>,
}

impl Words {
    pub(super) fn with_capacity(words: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(words) }
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

impl<W: AsRef<[u8]>> FromIterator<W> for Words {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Self {
        let mut all = Self::default();
        words.into_iter().for_each(|word| all.push(word));
        all
    }
}

impl<W: AsRef<[u8]>, const N: usize> From<[W; N]> for Words {
    fn from(words: [W; N]) -> Self {
        words.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_put() {
        let mut words = Words::from(["a", "", "bc"]);
        words.append(&Words::from(["", "d"]));
        words.push(b"e");
        let all: Vec<&[u8]> = words.iter().collect();
        assert_eq!(all, [&b"a"[..], b"", b"bc", b"", b"d", b"e"]);
        assert_eq!((words.len(), words.bytes()), (6, 5));
    }
}
