//! Finds the entry of one key in a probe's answer.
//!
//! A probe asks a server whether a request under a key had its effect. Servers ignore filters that they
//! do not know, so an entry counts only if the key stands in it. They remember keys for longer than we do,
//! and payments that failed, so an entry also counts only if it is young enough and was made.

pub(crate) mod list_end;

use std::borrow::Cow;
use std::ops::RangeInclusive;

use firstwrite_core::reconcile::Rules;
use firstwrite_core::{Pointer, Timestamp};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use self::list_end::{ListAnswer, Position};
use crate::reconcile::{Made, TimeForm};

/// The form of a probe's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeForm {
    /// The array of entries. Without it, the whole answer is the entry.
    pub list: Option<Pointer>,
    /// The key, seen from an entry. A list needs it.
    pub key: Option<Pointer>,
    /// Selects the entries that were made, by a status seen from an entry. Others are passed over.
    pub made: Made<Pointer>,
    /// The time at which an entry was made, seen from it. One that is more than five minutes older than the request
    /// is of an earlier life of its key, and is passed over.
    pub at: Option<Pointer>,
    /// The form of times.
    pub times: TimeForm,
    /// The places, seen from the answer, whose values say nothing about whether an empty list is whole.
    pub harmless: Vec<Pointer>,
    /// The statuses by which the server says that it has no such thing, without a list: 204, 404 or 410. None
    /// unless set: a server also says 404 of a path that is wrong, and of everything while it is being moved.
    pub absent_statuses: Vec<StatusCode>,
    /// States that an empty list, where nothing in the answer says that there is more, means *no*. Unless set it
    /// says nothing: an API that is asked with the token of another account lists nothing of this one.
    pub empty_is_absent: bool,
}

impl ProbeForm {
    /// Checks the form; the error names what is missing.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.list.is_some() && self.key.is_none() {
            return Err("a list needs key, the place of the key in its entries, such as \
                        \"/idempotency_key\": an API that ignores the filter lists other entries");
        }
        if self.key.as_ref().is_some_and(|key| key.as_str().is_empty()) {
            return Err("key: a place in the entry is needed, such as \"/idempotency_key\"");
        }
        if self.list.is_none() && !self.harmless.is_empty() {
            return Err("harmless is about the answer around a list; set list, or leave it out");
        }
        if self.list.is_some() && !self.absent_statuses.is_empty() {
            return Err(
                "absent_statuses is for a probe without list: a list is empty, or proves nothing",
            );
        }
        if self.list.is_none() && self.empty_is_absent {
            return Err("empty_is_absent is about a list; set list, or leave it out");
        }
        let may_say_absent = |status: &StatusCode| {
            matches!(*status, StatusCode::NO_CONTENT | StatusCode::NOT_FOUND | StatusCode::GONE)
        };
        if !self.absent_statuses.iter().all(may_say_absent) {
            return Err("absent_statuses: 204, 404 and 410 can say that there is no such thing");
        }
        if self.harmless.iter().any(|place| place.as_str().is_empty()) {
            return Err("harmless: name places in the answer, such as \"/meta/took\"");
        }
        let covers_list = |harmless: &Pointer| {
            self.list.as_ref().is_some_and(|list| list_end::is_within(list, harmless))
        };
        if self.harmless.iter().any(covers_list) {
            return Err("harmless: the list, and what it stands in, say whether it is whole");
        }
        let status = match &self.made {
            Made::All => None,
            Made::ByStatus { status, .. } => Some(status),
        };
        let places = [self.key.as_ref(), self.at.as_ref(), status];
        if has_repetition(places) {
            return Err("each of key, at and made.status is in a place of its own");
        }
        Ok(())
    }

    /// Returns true if an answer of this status says that there is no such thing.
    pub fn says_absent(&self, status: StatusCode) -> bool {
        self.absent_statuses.contains(&status)
    }

    /// Returns true if the form says something of the answer's content. Otherwise the answer counts as it comes.
    pub fn reads_content(&self) -> bool {
        self.list.is_some()
            || self.key.is_some()
            || self.at.is_some()
            || self.made != Made::default()
    }

    /// Returns the entry of the request that was made at `asked_at` under `wire_key`, or `None` if the list
    /// is empty, [`Self::empty_is_absent`] is set, and everything else in the answer, its headers included, is
    /// known to be harmless.
    ///
    /// The moment of the question is not known here: [`Self::find_between`] also refuses entries of the future.
    ///
    /// Every other answer proves nothing: two entries under the key, a list of other entries, which may be
    /// one page of many, an empty page of many, or an entry that is not decided. The error says which.
    pub fn find<'a>(
        &self,
        headers: &HeaderMap,
        document: &'a Value,
        wire_key: &str,
        asked_at: Timestamp,
    ) -> Result<Option<&'a Value>, Cow<'static, str>> {
        self.find_between(headers, document, wire_key, asked_at..=Timestamp::from_millis(i64::MAX))
    }

    /// Returns the same, where `between` is the time from the request to the question: an entry that is dated later
    /// than the question, by more than five minutes, has a wrong date and proves nothing.
    pub fn find_between<'a>(
        &self,
        headers: &HeaderMap,
        document: &'a Value,
        wire_key: &str,
        between: RangeInclusive<Timestamp>,
    ) -> Result<Option<&'a Value>, Cow<'static, str>> {
        let entries = match &self.list {
            None => std::slice::from_ref(document),
            Some(list) => {
                match document.pointer(list.as_str()).and_then(Value::as_array).map(Vec::as_slice) {
                    Some([]) => return self.absence(headers, document, list).map(|()| None),
                    Some(entries) => entries,
                    None => return Err("it has no array where the list should be".into()),
                }
            }
        };
        let is_ours = |entry: &&Value| match &self.key {
            Some(key) => entry.pointer(key.as_str()).and_then(Value::as_str) == Some(wire_key),
            None => self.list.is_none(),
        };
        let mut found = None;
        let mut passed_over = None;
        for entry in entries.iter().filter(is_ours) {
            match self.standing(entry, &between)? {
                Standing::Made if found.is_some() => {
                    return Err("more than one entry has the key".into());
                }
                Standing::Made => found = Some(entry),
                Standing::PassedOver(why) => passed_over = Some(why),
            }
        }
        match (found, passed_over) {
            (Some(entry), _) => Ok(Some(entry)),
            (None, Some(why)) => Err(why.into()),
            (None, None) => Err("it has entries, and none with the key".into()),
        }
    }

    /// Checks that the answer around an empty list says nothing against its being whole.
    fn absence(
        &self,
        headers: &HeaderMap,
        document: &Value,
        list: &Pointer,
    ) -> Result<(), Cow<'static, str>> {
        if !self.empty_is_absent {
            return Err("its list is empty, which may be that of another account; only \
                        empty_is_absent states that it means no"
                .into());
        }
        let (paging, harmless) = (None, &self.harmless[..]);
        let stated = ListAnswer { headers, document, list, paging, harmless }
            .check(Position::End)
            .map_err(|what| format!("its list is empty, and it {what}"))?;
        if stated.exceeds(0, 1) {
            return Err("its list is empty, and it says that there are more".into());
        }
        Ok(())
    }

    fn standing(
        &self,
        entry: &Value,
        between: &RangeInclusive<Timestamp>,
    ) -> Result<Standing, &'static str> {
        if let Made::ByStatus { status, .. } = &self.made {
            let status = entry.pointer(status.as_str()).and_then(Value::as_str);
            match self.made.is_made(status) {
                Some(true) => {}
                Some(false) => return Err("the entry with the key is not decided"),
                None => return Ok(Standing::PassedOver("the entry with the key was not made")),
            }
        }
        if let Some(at) = &self.at {
            let text = match entry.pointer(at.as_str()) {
                Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
                Some(Value::Number(number)) => Cow::Owned(number.to_string()),
                _ => return Err("the entry with the key has no time"),
            };
            let made_at = self.times.parse(&text).ok_or("the entry's time cannot be read")?;
            if between.end().plus(Rules::TOLERANCE) < made_at {
                return Err("the entry with the key is dated in the future");
            }
            if made_at.plus(Rules::TOLERANCE) < *between.start() {
                return Ok(Standing::PassedOver(
                    "the entry with the key is older than the request",
                ));
            }
        }
        Ok(Standing::Made)
    }
}

/// Returns true if one place is given twice.
pub(crate) fn has_repetition<const N: usize>(places: [Option<&Pointer>; N]) -> bool {
    let given: Vec<&Pointer> = places.into_iter().flatten().collect();
    given
        .iter()
        .enumerate()
        .any(|(at, place)| given.iter().skip(at + 1).any(|other| place == other))
}

/// The weight of an entry under the key.
enum Standing {
    Made,
    /// It says nothing of this request: for what reason.
    PassedOver(&'static str),
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn form(list: Option<&str>, key: Option<&str>) -> ProbeForm {
        let pointer = |text: &str| text.parse().unwrap();
        let (list, key) = (list.map(pointer), key.map(pointer));
        ProbeForm { empty_is_absent: list.is_some(), list, key, ..ProbeForm::default() }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
    static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

    #[test]
    fn only_a_status_that_is_stated_says_no() {
        let stated = |statuses: &[StatusCode]| ProbeForm {
            absent_statuses: statuses.to_vec(),
            ..ProbeForm::default()
        };
        assert!(!ProbeForm::default().says_absent(StatusCode::NOT_FOUND));
        let not_found = stated(&[StatusCode::NOT_FOUND]);
        assert!(not_found.check().is_ok() && not_found.says_absent(StatusCode::NOT_FOUND));
        assert!(!not_found.says_absent(StatusCode::GONE) && !not_found.reads_content());
        for wrong in [StatusCode::OK, StatusCode::UNAUTHORIZED, StatusCode::BAD_GATEWAY] {
            assert!(stated(&[wrong]).check().is_err(), "{wrong}");
        }
        let listed = ProbeForm {
            absent_statuses: not_found.absent_statuses,
            ..form(Some("/a"), Some("/k"))
        };
        assert!(listed.check().is_err());
    }

    /// An API that is asked with the token of another account lists nothing.
    #[test]
    fn an_empty_list_says_no_only_where_it_is_stated() {
        let stated = form(Some("/data"), Some("/key"));
        let unstated = ProbeForm { empty_is_absent: false, ..stated.clone() };
        let empty = json!({"data": []});
        assert_eq!(stated.find(&NO_HEADERS, &empty, "k", NOW), Ok(None));
        let silent = unstated.find(&NO_HEADERS, &empty, "k", NOW).unwrap_err();
        assert!(silent.contains("another account"), "{silent}");
        let ours = json!({"data": [{"key": "k"}]});
        assert_eq!(unstated.find(&NO_HEADERS, &ours, "k", NOW), Ok(Some(&ours["data"][0])));
        let single = ProbeForm { empty_is_absent: true, ..form(None, Some("/key")) };
        assert!(unstated.check().is_ok() && single.check().is_err());
    }

    #[test]
    fn an_entry_counts_only_with_its_key() {
        let listed = form(Some("/data"), Some("/ref/key"));
        let ours = json!({"id": 1, "ref": {"key": "k"}});
        for (entries, found) in [
            (json!([ours]), Ok(Some(&ours))),
            (json!([{"id": 2, "ref": {"key": "other"}}, ours, {"id": 3}]), Ok(Some(&ours))),
            (json!([]), Ok(None)),
            (json!([ours, ours]), Err("more than one")),
            (json!([{"id": 2, "ref": {"key": "other"}}]), Err("none with the key")),
            (json!([{"id": 2}]), Err("none with the key")),
            (json!([{"ref": {"key": "k2"}}, {"ref": {"key": "K"}}]), Err("none with the key")),
            (json!([1]), Err("none with the key")),
            (json!({"0": ours}), Err("no array")),
        ] {
            let document = json!({"data": entries});
            match (listed.find(&NO_HEADERS, &document, "k", NOW), found) {
                (Err(said), Err(expected)) => assert!(said.contains(expected), "{said}"),
                (said, expected) => assert_eq!(said.ok(), expected.ok(), "{document}"),
            }
        }
    }

    #[test]
    fn what_the_settings_call_harmless_is() {
        let document = json!({"data": [], "meta": {"took": 12}});
        let listed = form(Some("/data"), Some("/key"));
        let refused = listed.find(&NO_HEADERS, &document, "k", NOW).unwrap_err();
        assert!(refused.contains("/meta/took"), "{refused}");
        let harmless = vec!["/meta/took".parse().unwrap()];
        let listed = ProbeForm { harmless: harmless.clone(), ..listed };
        assert_eq!(listed.find(&NO_HEADERS, &document, "k", NOW), Ok(None));
        assert!(ProbeForm { harmless, ..form(None, None) }.check().is_err());
    }

    #[test]
    fn the_entry_of_a_single_answer_is_compared_where_its_key_is_named() {
        let document = json!({"id": 1, "key": "k"});
        assert_eq!(
            form(None, None).find(&NO_HEADERS, &document, "other", NOW),
            Ok(Some(&document))
        );
        assert_eq!(
            form(None, Some("/key")).find(&NO_HEADERS, &document, "k", NOW),
            Ok(Some(&document))
        );
        assert!(form(None, Some("/key")).find(&NO_HEADERS, &document, "other", NOW).is_err());
        assert!(form(None, Some("/no")).find(&NO_HEADERS, &document, "k", NOW).is_err());
    }

    #[test]
    fn an_entry_that_failed_or_is_of_an_earlier_life_proves_nothing() {
        let pointer = |text: &str| text.parse::<Pointer>().unwrap();
        let form = ProbeForm {
            made: Made::by_status(pointer("/status"), &["paid"], &["failed"]),
            at: Some(pointer("/at")),
            times: TimeForm::UnixSeconds,
            ..form(Some(""), Some("/key"))
        };
        // The request was made at 1,000,000 s; clocks may differ by five minutes.
        let entry = |status: &str, at: i64| json!({"key": "k", "status": status, "at": at});
        let paid = entry("paid", 1_000_001);
        for (entries, found) in [
            (json!([paid]), Ok(Some(&paid))),
            (json!([entry("failed", 1_000_000), entry("paid", 100), paid]), Ok(Some(&paid))),
            (json!([entry("failed", 1_000_000)]), Err("was not made")),
            (json!([entry("pending", 1_000_000)]), Err("not decided")),
            (json!([entry("pending", 1_000_000), paid]), Err("not decided")),
            (json!([entry("paid", 999_699)]), Err("older")),
            (json!([{"key": "k", "status": "paid"}]), Err("no time")),
            (json!([{"key": "k", "status": "paid", "at": "noon"}]), Err("cannot be read")),
            (json!([paid, paid]), Err("more than one")),
        ] {
            match (form.find(&NO_HEADERS, &entries, "k", NOW), found) {
                (Err(said), Err(expected)) => assert!(said.contains(expected), "{said}"),
                (said, expected) => assert_eq!(said.ok(), expected.ok(), "{entries}"),
            }
        }
        let barely = json!([entry("paid", 999_700)]);
        assert_eq!(form.find(&NO_HEADERS, &barely, "k", NOW), Ok(Some(&barely[0])));
    }

    /// A provider that writes its local time as if it were UTC dates a payment of an earlier life after the request.
    #[test]
    fn an_entry_of_the_future_proves_nothing() {
        let form = ProbeForm {
            at: Some("/at".parse().unwrap()),
            times: TimeForm::UnixSeconds,
            ..form(Some(""), Some("/key"))
        };
        // The request was made at 1,000,000 s, and is asked about at 1,000,060 s.
        let asked = NOW..=NOW.plus(Duration::from_mins(1));
        let entry = |at: i64| json!([{"key": "k", "at": at}]);
        let found = |entries: &Value| {
            form.find_between(&NO_HEADERS, entries, "k", asked.clone()).map(|found| found.is_some())
        };
        assert_eq!(found(&entry(1_000_060)), Ok(true));
        assert_eq!(found(&entry(1_000_360)), Ok(true));
        for (entries, why) in [
            (entry(1_000_361), "in the future"),
            (entry(1_007_200), "in the future"),
            (entry(999_000), "older"),
            // Its date is wrong, so it may be another payment of this request.
            (
                json!([{"key": "k", "at": 1_000_001}, {"key": "k", "at": 1_007_200}]),
                "in the future",
            ),
        ] {
            let said = found(&entries).unwrap_err();
            assert!(said.contains(why), "{entries}: {said}");
        }
    }

    #[test]
    fn a_list_without_a_place_for_the_key_is_refused() {
        assert!(form(Some("/data"), None).check().unwrap_err().contains("/idempotency_key"));
        assert!(form(Some(""), Some("/key")).check().is_ok());
        assert!(form(None, None).check().is_ok() && form(None, Some("")).check().is_err());
        assert!(
            form(Some("/data"), None).find(&NO_HEADERS, &json!({"data": [1]}), "k", NOW).is_err()
        );
    }
}
