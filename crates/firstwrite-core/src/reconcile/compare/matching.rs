//! Matches entries: by wire key, then by the provider's id, then by amount and time where only two could be
//! meant.

mod spelling;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::super::{Amount, Contradiction, MatchedBy, Ours, Rules, Standing, Theirs};
use super::{is_older, sum_differences};
use crate::Timestamp;
use spelling::{OurKeys, Spellings};

/// Matches entries of both books. Indices are those of the slices passed in.
#[derive(Debug)]
pub(super) struct Matching<'b> {
    ours: &'b [Ours],
    theirs: &'b [Theirs],
    counterparts: Vec<Option<(usize, MatchedBy)>>,
    /// For entries of ours, the other effects that the provider has under the same key.
    further: HashMap<usize, Vec<usize>>,
    /// Entries of ours that were given twice.
    is_repeated: Vec<bool>,
    /// Entries of theirs that have a counterpart, or were given twice.
    is_taken: Vec<bool>,
    /// Entries of ours whose effect another one has a claim to.
    is_shared: Vec<bool>,
    /// Entries of theirs without a key that are left over, and second effects under one of our keys.
    nameless: Leftovers<'b>,
    /// Entries of theirs left over under a key that is not known to be ours: mangled, or the provider's own.
    foreign: Leftovers<'b>,
    /// Entries of theirs whose id another one has too: their ids name no payments.
    has_shared_id: Vec<bool>,
    /// An entry of theirs bears a key of ours, and is of another amount or currency than anything that was asked
    /// for under it: it may have been made for another request.
    has_stranger: bool,
    /// Traces of our keys in the keys and ids of what is left of theirs.
    spellings: Spellings,
    /// The times of entries of theirs that neither a key nor an id attributes to ours, in order.
    nameless_times: Vec<Timestamp>,
}

/// An account that dates its entries in another time zone is off by less.
const ZONES: Duration = Duration::from_hours(24);

/// Leftover entries of theirs as far as they can be in the way of a proof: when the last one of each
/// amount was.
#[derive(Debug, Default)]
struct Leftovers<'b> {
    of_amount: HashMap<&'b Amount, Timestamp>,
    without_amount: Option<Timestamp>,
    of_all: Option<Timestamp>,
}

/// Places of ours, and of theirs, that have something in common.
type Both = (Vec<usize>, Vec<usize>);

/// Properties in which two entries of theirs must agree to be one that was given twice: id, key, amount and
/// currency; where no key names them, the time too.
type Identity<'b> =
    (&'b str, Option<&'b str>, Option<&'b Amount>, Option<&'b str>, Option<Timestamp>);

/// Values that two entries must share to match by amount.
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
            is_shared: vec![false; ours.len()],
            nameless: Leftovers::default(),
            foreign: Leftovers::default(),
            has_shared_id: vec![false; theirs.len()],
            has_stranger: false,
            spellings: Spellings::default(),
            nameless_times: Vec::new(),
        };
        matching.leave_out_repetitions();
        matching.by_key(rules);
        matching.by_provider_id();
        matching.by_amount(rules);
        matching.sort_leftovers();
        matching.nameless_times = matching.times_of_nameless(rules);
        matching
    }

    /// Returns true if this entry of ours gets a verdict.
    pub(super) fn is_judged(&self, index: usize) -> bool {
        !self.is_repeated[index]
    }

    /// The counterpart of an entry of ours.
    pub(super) fn counterpart(&self, index: usize) -> Option<(usize, MatchedBy)> {
        self.counterparts[index]
    }

    /// Returns the other effects under the key of an entry of ours.
    pub(super) fn further(&self, index: usize) -> &[usize] {
        self.further.get(&index).map_or(&[], Vec::as_slice)
    }

    /// The entries of theirs without a counterpart.
    pub(super) fn left_over(&self) -> impl Iterator<Item = usize> {
        let taken = self.is_taken.iter().enumerate();
        taken.filter(|(_, is_taken)| !**is_taken).map(|(place, _)| place)
    }

    /// Returns true if the effect of an entry of ours may be that of another one.
    pub(super) fn is_shared(&self, index: usize) -> bool {
        self.is_shared[index]
    }

    /// Returns true if another entry of theirs has the id of this one.
    pub(super) fn has_shared_id(&self, place: usize) -> bool {
        self.has_shared_id[place]
    }

    /// Returns true if an entry that is left over could be `our`.
    pub(super) fn has_possible(&self, our: &Ours, rules: &Rules) -> bool {
        self.nameless.could_be(our, rules)
            || self.foreign.could_be(our, rules)
            || self.spellings.has(our)
    }

    /// Returns true if an entry without a name lies in the time in which `our` can stand in the account. Fees,
    /// units and currencies change amounts, so it can be `our`, whatever its amount.
    pub(super) fn has_nameless_in_time_of(&self, our: &Ours, rules: &Rules) -> bool {
        let apart = rules.tolerance.max(ZONES);
        let first = self.nameless_times.partition_point(|at| at.plus(apart) < our.at);
        let last = our.until.plus(rules.grace).plus(apart);
        self.nameless_times.get(first).is_some_and(|at| *at <= last)
    }

    /// Returns what the keys of entries have against the account: an entry in doubt could be there under the key
    /// of another one of ours, or under one that is not known to be ours.
    pub(super) fn contradiction(&self, rules: &Rules) -> Option<Contradiction> {
        if self.has_stranger {
            return Some(Contradiction::Differs);
        }
        if self.has_shared_id.contains(&true) {
            return Some(Contradiction::SharedId);
        }
        let has_foreign = self.in_doubt().any(|our| self.foreign.could_be(our, rules));
        has_foreign.then_some(Contradiction::ForeignKey)
    }

    /// A list that moves while its pages are read can give an entry twice. Entries that differ are two, whatever
    /// their ids.
    fn leave_out_repetitions(&mut self) {
        let mut subjects = HashSet::new();
        for (index, our) in self.ours.iter().enumerate() {
            self.is_repeated[index] = !subjects.insert(our.subject);
        }
        let mut places: HashMap<Identity<'_>, usize> = HashMap::new();
        for (place, their) in self.theirs.iter().enumerate() {
            let other = places.entry(identity(their)).or_insert(place);
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
        let mut ids: HashMap<&str, usize> = HashMap::new();
        for place in places.into_values() {
            if let Some(other) = ids.insert(&self.theirs[place].provider_id, place) {
                (self.has_shared_id[place], self.has_shared_id[other]) = (true, true);
            }
        }
    }

    fn by_key(&mut self, rules: &Rules) {
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
            self.has_stranger |= there.iter().any(|place| {
                let differs = |index: &usize| {
                    !sum_differences(&self.ours[*index], &self.theirs[*place]).is_empty()
                };
                here.iter().all(differs)
            });
            self.share_out(&here, there, rules);
        }
    }

    /// Pairs entries of one key: those of one id, and the others in their order. Where there are more
    /// requests than effects, it is unknown whose effect each is.
    fn share_out(&mut self, here: &[usize], mut there: Vec<usize>, rules: &Rules) {
        let is_older_than =
            |place: usize, index: usize| is_older(&self.theirs[place], &self.ours[index], rules);
        // Effects of an earlier life of the key belong to none of these, unless there are no others.
        if there.iter().any(|place| !is_older_than(*place, here[0])) {
            there.retain(|place| !is_older_than(*place, here[0]));
        }
        // An effect that is not made yet says nothing beside one that is.
        let made = |place: &usize| self.theirs[*place].is_made;
        let mut rest: Vec<usize> = there.iter().copied().filter(made).collect();
        if rest.is_empty() {
            rest.clone_from(&there);
        }
        let newest = rest[rest.len() - 1];
        let mut waiting = Vec::new();
        for index in here {
            let our = &self.ours[*index];
            let id = our.provider_id.as_deref();
            let found = rest.iter().position(|place| id == Some(&*self.theirs[*place].provider_id));
            if let Some(found) = found {
                self.counterparts[*index] = Some((rest.remove(found), MatchedBy::Key));
            } else if is_older_than(newest, *index) {
                // No effect is young enough for it. It is a finding where one is believed to be there.
                if matches!(our.standing, Standing::InDoubt | Standing::Arrived) {
                    self.counterparts[*index] = Some((newest, MatchedBy::Key));
                }
            } else {
                waiting.push(*index);
            }
        }
        let are_shared = rest.len() < waiting.len();
        let mut places = rest.into_iter();
        for index in waiting {
            self.counterparts[index] = Some((places.next().unwrap_or(newest), MatchedBy::Key));
            self.is_shared[index] = are_shared;
        }
        let Some(first) = here.iter().find(|index| self.counterparts[**index].is_some()) else {
            return;
        };
        // What is left over is a second effect of this life, or one of an earlier life.
        let of_this_life =
            |place: &usize| !is_older(&self.theirs[*place], &self.ours[*first], rules);
        let further: Vec<usize> = places.filter(of_this_life).collect();
        if !further.is_empty() {
            self.further.insert(*first, further);
        }
        for place in there {
            self.is_taken[place] = true;
        }
    }

    fn by_provider_id(&mut self) {
        let mut ids: HashMap<&str, Both> = HashMap::new();
        for index in self.unmatched() {
            if let Some(id) = self.ours[index].provider_id.as_deref() {
                ids.entry(id).or_default().0.push(index);
            }
        }
        for (place, their) in self.theirs.iter().enumerate() {
            if let Some((_, there)) = ids.get_mut(&*their.provider_id) {
                there.push(place);
            }
        }
        for (here, mut there) in ids.into_values().filter(|(_, there)| !there.is_empty()) {
            there.sort_by_key(|place| (self.theirs[*place].at, &self.theirs[*place].raw));
            let free: Vec<usize> =
                there.iter().copied().filter(|place| !self.is_taken[*place]).collect();
            // One that another request has by its key is not a second one.
            let place = free.first().unwrap_or(&there[0]);
            let are_shared = here.len() > 1 || free.is_empty();
            for index in &here {
                self.counterparts[*index] = Some((*place, MatchedBy::ProviderId));
                self.is_shared[*index] = are_shared;
            }
            // Which of several we were told of is unknown.
            if free.len() > 1 {
                self.further.insert(here[0], free[1..].to_vec());
            }
            for place in free {
                self.is_taken[place] = true;
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

    /// A match by amount is a guess, and gives no name unless the rules say that it is a proof.
    fn times_of_nameless(&self, rules: &Rules) -> Vec<Timestamp> {
        let by_amount = self.counterparts.iter().flatten();
        let guessed =
            by_amount.filter(|(_, by)| *by == MatchedBy::Amount && !rules.is_amount_proof);
        let guessed = guessed.map(|(place, _)| *place);
        let places = self.left_over().chain(guessed);
        let nameless = places.filter(|place| self.theirs[*place].key.is_none());
        let mut times: Vec<Timestamp> = nameless.map(|place| self.theirs[place].at).collect();
        times.sort_unstable();
        times
    }

    fn unmatched(&self) -> Vec<usize> {
        let all = 0..self.ours.len();
        all.filter(|index| self.is_judged(*index) && self.counterparts[*index].is_none()).collect()
    }

    /// The entries of ours in doubt that have no counterpart.
    fn in_doubt(&self) -> impl Iterator<Item = &'b Ours> {
        let ours = self.ours;
        let unmatched = self.unmatched().into_iter().map(move |index| &ours[index]);
        unmatched.filter(|our| our.standing == Standing::InDoubt)
    }

    fn sort_leftovers(&mut self) {
        let (mut nameless, mut foreign) = (Leftovers::default(), Leftovers::default());
        let mut our_keys = OurKeys::of(self.ours);
        let mut spellings = Spellings::of(self.in_doubt());
        for place in self.left_over() {
            let their = &self.theirs[place];
            match their.key.as_deref() {
                Some(key) if our_keys.has(key) => continue,
                Some(key) => {
                    foreign.add(their);
                    spellings.add_key(key);
                }
                None => nameless.add(their),
            }
            spellings.add_id(&their.provider_id);
        }
        // A second effect under a key of ours may have been made for another request.
        for place in self.further.values().flatten() {
            nameless.add(&self.theirs[*place]);
        }
        (self.nameless, self.foreign, self.spellings) = (nameless, foreign, spellings);
    }
}

fn identity(their: &Theirs) -> Identity<'_> {
    let Theirs { provider_id, key, amount, currency, at, .. } = their;
    let time = key.is_none().then_some(*at);
    (provider_id, key.as_deref(), amount.as_ref(), currency.as_deref(), time)
}

impl<'b> Leftovers<'b> {
    fn add(&mut self, their: &'b Theirs) {
        self.of_all = self.of_all.max(Some(their.at));
        match &their.amount {
            Some(amount) => {
                let last = self.of_amount.entry(amount).or_insert(their.at);
                *last = their.at.max(*last);
            }
            None => self.without_amount = self.without_amount.max(Some(their.at)),
        }
    }

    /// Returns true if one of these could be `our`, by its amount and its time.
    fn could_be(&self, our: &Ours, rules: &Rules) -> bool {
        let last = match &our.amount {
            Some(amount) => self.of_amount.get(amount).copied().max(self.without_amount),
            None => self.of_all,
        };
        last.is_some_and(|last| our.at <= last.plus(rules.tolerance.max(ZONES)))
    }
}
