//! The fields of a body that a rule ignores or selects, cut out of its canonical form.

use super::canonical::{ARRAY, END, IGNORED, MISSING, NAME, OBJECT, payload_end, value_end};
use super::pointer::{Pointer, Step};

/// Returns the canonical form without the values at the pointers.
///
/// An ignored member is gone, name and all. An ignored element leaves a mark, for the length of an
/// array is never ignored.
pub(super) fn without(form: &[u8], ignore: &[Pointer]) -> Vec<u8> {
    let mut sieve = Sieve { form, ignore, path: Vec::new(), out: Vec::with_capacity(form.len()) };
    if sieve.is_ignored() {
        return vec![IGNORED];
    }
    sieve.keep_value(0);
    sieve.out
}

/// The values at the pointers, in the pointers' order.
pub(super) fn only(form: &[u8], select: &[Pointer]) -> Vec<u8> {
    let mut out = Vec::new();
    for pointer in select {
        match find(form, pointer) {
            Some(value) => out.extend_from_slice(value),
            None => out.push(MISSING),
        }
    }
    out
}

/// One step of a walk through a form: a member's name or an element's index.
pub(super) enum Place<'f> {
    Name(&'f [u8]),
    Index(usize),
}

impl Place<'_> {
    fn is(&self, step: &Step) -> bool {
        match self {
            Self::Name(name) => *name == step.name.as_bytes(),
            Self::Index(index) => step.index == Some(*index),
        }
    }
}

struct Sieve<'f, 'p> {
    form: &'f [u8],
    ignore: &'p [Pointer],
    path: Vec<Place<'f>>,
    out: Vec<u8>,
}

impl Sieve<'_, '_> {
    fn is_ignored(&self) -> bool {
        self.ignore.iter().any(|pointer| {
            let steps = pointer.steps();
            // Compared from the end, where two paths of one length most often differ.
            steps.len() == self.path.len()
                && self.path.iter().zip(steps).rev().all(|(place, step)| place.is(step))
        })
    }

    /// Copies the value at `at`, less what is ignored inside it, and returns where it ends.
    fn keep_value(&mut self, at: usize) -> usize {
        match self.form[at] {
            OBJECT => self.keep_members(at),
            ARRAY => self.keep_elements(at),
            _ => self.keep_bytes(at, payload_end(self.form, at + 1)),
        }
    }

    fn keep_members(&mut self, start: usize) -> usize {
        let mut at = self.keep_bytes(start, start + 1);
        while self.form[at] == NAME {
            let name_end = payload_end(self.form, at + 1);
            self.path.push(Place::Name(&self.form[at + 1..name_end]));
            at = if self.is_ignored() {
                value_end(self.form, name_end)
            } else {
                self.keep_bytes(at, name_end);
                self.keep_value(name_end)
            };
            self.path.pop();
        }
        self.keep_bytes(at, at + 1)
    }

    fn keep_elements(&mut self, start: usize) -> usize {
        let mut at = self.keep_bytes(start, start + 1);
        let mut index = 0;
        while self.form[at] != END {
            self.path.push(Place::Index(index));
            at = if self.is_ignored() {
                self.out.push(IGNORED);
                value_end(self.form, at)
            } else {
                self.keep_value(at)
            };
            self.path.pop();
            index += 1;
        }
        self.keep_bytes(at, at + 1)
    }

    fn keep_bytes(&mut self, from: usize, to: usize) -> usize {
        self.out.extend_from_slice(&self.form[from..to]);
        to
    }
}

fn find<'f>(form: &'f [u8], pointer: &Pointer) -> Option<&'f [u8]> {
    let mut at = 0;
    for step in pointer.steps() {
        at = match form[at] {
            OBJECT => find_member(form, at + 1, step.name.as_bytes())?,
            ARRAY => find_element(form, at + 1, step.index?)?,
            _ => return None,
        };
    }
    Some(&form[at..value_end(form, at)])
}

fn find_member(form: &[u8], mut at: usize, name: &[u8]) -> Option<usize> {
    while form[at] == NAME {
        let name_end = payload_end(form, at + 1);
        if &form[at + 1..name_end] == name {
            return Some(name_end);
        }
        at = value_end(form, name_end);
    }
    None
}

fn find_element(form: &[u8], mut at: usize, index: usize) -> Option<usize> {
    for _ in 0..index {
        if form[at] == END {
            return None;
        }
        at = value_end(form, at);
    }
    (form[at] != END).then_some(at)
}
