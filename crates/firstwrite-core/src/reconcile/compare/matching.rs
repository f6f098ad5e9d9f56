//! Which entries mean the same: by wire key, then by the provider's id, then by amount and time where
//! only two could be meant.

use std::collections::{HashMap, HashSet};

use super::super::{Amount, MatchedBy, Ours, Rules, Theirs};
use crate::Timestamp;

/// Who belongs to whom. Places are those in the slices that were given.
#[derive(Debug)]
pub(super) struct Matching<'b> {
    ours: &'b [Ours],
    theirs: &'b [Theirs],
    counterparts: Vec<Option<(usize, MatchedBy)>>,
    /// Of entries of ours: what else the provider did under the same key.
    further: HashMap<usize, Vec<usize>>,
    /// Entries of ours that were given twice.
    is_repeated: Vec<bool>,
    /// Entries of theirs that have a counterpart, or were given twice.
    is_taken: Vec<bool>,
    nameless: Nameless<'b>,
}

/// What is left of theirs and has no key, as far as it can be in the way of a proof: when the last one
/// of each amount was.
#[derive(Debug, Default)]
struct Nameless<'b> {
    of_amount: HashMap<&'b Amount, Timestamp>,
    without_amount: Option<Timestamp>,
    of_all: Option<Timestamp>,
}

/// Places of ours, and of theirs, that have something in common.
type Both = (Vec<usize>, Vec<usize>);

/// What an entry must have in common with another to match by amount.
type Sum<'b> = (&'b Amount, Option<String>);

impl<'b> Matching<'b> {
    pub(super) fn of(ours: &'b [Ours], theirs: &'b [Theirs], rules: &Rules) -> Self {
        let mut matching = Self {
            ours,
            theirs,
            counterparts: vec![None; ours.len()],
            further: HashMap::new(),
            is_repeated: vec![false; ours.len()],
            is_taken: vec![false; theirs.len()],
            nameless: Nameless::default(),
        };
        matching.leave_out_repetitions();
        matching.by_key();
        matching.by_provider_id();
        matching.by_amount(rules);
        matching.nameless = matching.nameless();
        matching
    }

    /// Whether something is to be said of this entry of ours.
    pub(super) fn is_judged(&self, index: usize) -> bool {
        !self.is_repeated[index]
    }

    /// The counterpart of an entry of ours.
    pub(super) fn counterpart(&self, index: usize) -> Option<(usize, MatchedBy)> {
        self.counterparts[index]
    }

    /// What else the provider did under the key of an entry of ours.
    pub(super) fn further(&self, index: usize) -> &[usize] {
        self.further.get(&index).map_or(&[], Vec::as_slice)
    }

    /// The entries of theirs without a counterpart.
    pub(super) fn left_over(&self) -> impl Iterator<Item = usize> {
        let taken = self.is_taken.iter().enumerate();
        taken.filter(|(_, is_taken)| !**is_taken).map(|(place, _)| place)
    }

    /// Whether an entry that is left over could be `our`, as far as anybody can tell.
    pub(super) fn has_possible(&self, our: &Ours, rules: &Rules) -> bool {
        let Nameless { of_amount, without_amount, of_all } = &self.nameless;
        let last = match &our.amount {
            Some(amount) => of_amount.get(amount).copied().max(*without_amount),
            None => *of_all,
        };
        last.is_some_and(|last| our.at <= last.plus(rules.tolerance))
    }

    /// A list that moves while its pages are read can give an entry twice.
    fn leave_out_repetitions(&mut self) {
        let mut subjects = HashSet::new();
        for (index, our) in self.ours.iter().enumerate() {
            self.is_repeated[index] = !subjects.insert(our.subject);
        }
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (place, their) in self.theirs.iter().enumerate() {
            let other = places.entry(&their.provider_id).or_insert(place);
            if *other != place {
                // Whichever comes first, the same one is left.
                let rank = |place: usize| {
                    let their = &self.theirs[place];
                    (their.at, &their.raw, &their.key)
                };
                let (kept, left_out) =
                    if rank(place) > rank(*other) { (place, *other) } else { (*other, place) };
                self.is_taken[left_out] = true;
                *other = kept;
            }
        }
    }

    fn by_key(&mut self) {
        let mut keys: HashMap<&str, Both> = HashMap::new();
        for (index, our) in self.ours.iter().enumerate().filter(|(index, _)| self.is_judged(*index))
        {
            keys.entry(&our.wire_key).or_default().0.push(index);
        }
        for place in self.left_over() {
            if let Some(key) = &self.theirs[place].key
                && let Some((_, there)) = keys.get_mut(key.as_str())
            {
                there.push(place);
            }
        }
        for (mut here, mut there) in keys.into_values().filter(|(_, there)| !there.is_empty()) {
            here.sort_by_key(|index| (self.ours[*index].at, self.ours[*index].subject));
            there.sort_by_key(|place| (self.theirs[*place].at, &self.theirs[*place].provider_id));
            self.share_out(&here, &there);
        }
    }

    /// Pairs entries of one key: those of one id, and the others in their order. If there are fewer of
    /// theirs, the provider recognised the key, and one effect stands for several requests.
    fn share_out(&mut self, here: &[usize], there: &[usize]) {
        for place in there {
            self.is_taken[*place] = true;
        }
        let mut rest: Vec<usize> = there.to_vec();
        let mut last = there[0];
        let mut waiting = Vec::new();
        for index in here {
            let id = self.ours[*index].provider_id.as_deref();
            let found = rest.iter().position(|place| id == Some(&*self.theirs[*place].provider_id));
            match found {
                Some(found) => {
                    last = rest.remove(found);
                    self.counterparts[*index] = Some((last, MatchedBy::Key));
                }
                None => waiting.push(*index),
            }
        }
        let mut rest = rest.into_iter();
        for index in waiting {
            last = rest.next().unwrap_or(last);
            self.counterparts[index] = Some((last, MatchedBy::Key));
        }
        let rest: Vec<usize> = rest.collect();
        if !rest.is_empty() {
            self.further.insert(here[0], rest);
        }
    }

    fn by_provider_id(&mut self) {
        let ids: HashMap<&str, usize> =
            self.left_over().map(|place| (&*self.theirs[place].provider_id, place)).collect();
        for index in self.unmatched() {
            let id = self.ours[index].provider_id.as_deref();
            if let Some(place) = id.and_then(|id| ids.get(id)) {
                self.counterparts[index] = Some((*place, MatchedBy::ProviderId));
                self.is_taken[*place] = true;
            }
        }
    }

    /// Only entries that have no names to go by, and only where each of two could be no other.
    fn by_amount(&mut self, rules: &Rules) {
        let knows_currency = self.ours.iter().any(|our| our.currency.is_some())
            && self.theirs.iter().any(|their| their.currency.is_some());
        let sum = |amount: &'b Option<Amount>, currency: &Option<String>| -> Option<Sum<'b>> {
            let currency = currency.as_ref().filter(|_| knows_currency);
            Some((amount.as_ref()?, currency.map(|currency| currency.to_ascii_uppercase())))
        };
        let mut sums: HashMap<Sum<'b>, Both> = HashMap::new();
        for index in self.unmatched() {
            let our = &self.ours[index];
            if our.provider_id.is_none()
                && let Some(sum) = sum(&our.amount, &our.currency)
            {
                sums.entry(sum).or_default().0.push(index);
            }
        }
        for place in self.left_over() {
            let their = &self.theirs[place];
            if their.key.is_none()
                && let Some(sum) = sum(&their.amount, &their.currency)
                && let Some((_, there)) = sums.get_mut(&sum)
            {
                there.push(place);
            }
        }
        for (here, mut there) in sums.into_values() {
            there.sort_by_key(|place| self.theirs[*place].at);
            for (index, place) in self.only_pairs(&here, &there, rules) {
                self.counterparts[index] = Some((place, MatchedBy::Amount));
                self.is_taken[place] = true;
            }
        }
    }

    /// The pairs of one sum in which each is the only one that the other could be. `there` is in the
    /// order of time.
    fn only_pairs(&self, here: &[usize], there: &[usize], rules: &Rules) -> Vec<(usize, usize)> {
        // How many of ours begin, or end, to be possible at each of theirs.
        let mut changes = vec![0_i64; there.len() + 1];
        let mut only = Vec::new();
        for index in here {
            let our = &self.ours[*index];
            let first = there
                .partition_point(|place| self.theirs[*place].at.plus(rules.tolerance) < our.at);
            let end = there
                .partition_point(|place| self.theirs[*place].at <= our.until.plus(rules.tolerance));
            if first < end {
                changes[first] += 1;
                changes[end] -= 1;
            }
            if first + 1 == end {
                only.push((*index, first));
            }
        }
        let possible: Vec<i64> = changes
            .iter()
            .scan(0, |sum, change| {
                *sum += change;
                Some(*sum)
            })
            .collect();
        only.retain(|(_, position)| possible[*position] == 1);
        only.into_iter().map(|(index, position)| (index, there[position])).collect()
    }

    fn unmatched(&self) -> Vec<usize> {
        let all = 0..self.ours.len();
        all.filter(|index| self.is_judged(*index) && self.counterparts[*index].is_none()).collect()
    }

    fn nameless(&self) -> Nameless<'b> {
        let mut nameless = Nameless::default();
        for place in self.left_over() {
            let their = &self.theirs[place];
            if their.key.is_some() {
                continue;
            }
            nameless.of_all = nameless.of_all.max(Some(their.at));
            match &their.amount {
                Some(amount) => {
                    let last = nameless.of_amount.entry(amount).or_insert(their.at);
                    *last = their.at.max(*last);
                }
                None => {
                    nameless.without_amount = nameless.without_amount.max(Some(their.at));
                }
            }
        }
        nameless
    }
}
