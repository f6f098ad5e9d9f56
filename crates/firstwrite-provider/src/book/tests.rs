//! Tests of the book with a few payments.

use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(second: u64) -> Moment {
    Moment::from_millis(second * 1000)
}

fn payment(number: usize, key: &str, second: u64) -> Payment {
    Payment {
        id: Payment::id_of(number),
        amount: 500,
        currency: "EUR".to_owned(),
        reference: None,
        idempotency_key: Some(key.to_owned()),
        created_at: at(second),
    }
}

fn made(payment: Payment) -> Entry {
    Entry::Made(Made { payment, owes_webhook: false })
}

fn book(entries: impl IntoIterator<Item = Entry>) -> Book {
    let mut book = Book::default();
    entries.into_iter().for_each(|entry| book.apply(entry).unwrap());
    book
}

fn ids(payments: &[Payment]) -> Vec<usize> {
    payments.iter().map(|payment| Payment::number_of(&payment.id).unwrap()).collect()
}

fn judged(book: &Book, key: &str, amount: u64, keys: Keys, now: Moment) -> String {
    let wanted = Wanted { amount, currency: "EUR".to_owned(), reference: None };
    match book.judge(key, &wanted, keys, now) {
        Judged::Fresh => "fresh".to_owned(),
        Judged::Replay(payment) => format!("replay {}", payment.id),
        Judged::Mismatch => "mismatch".to_owned(),
    }
}

#[test]
fn a_key_is_honoured_ignored_or_forgotten() {
    let book = book([made(payment(1, "a", 10))]);
    let forget = Keys::ForgetAfter(SECOND * 5);
    for (key, amount, keys, second, verdict) in [
        ("a", 500, Keys::Honour, 99, "replay pay_00000001"),
        ("a", 501, Keys::Honour, 99, "mismatch"),
        ("b", 500, Keys::Honour, 99, "fresh"),
        ("a", 500, Keys::Ignore, 10, "fresh"),
        ("a", 500, forget, 14, "replay pay_00000001"),
        ("a", 501, forget, 14, "mismatch"),
        ("a", 501, forget, 15, "fresh"),
    ] {
        assert_eq!(
            judged(&book, key, amount, keys, at(second)),
            verdict,
            "{key} {amount} {keys:?}"
        );
    }
}

#[test]
fn a_repetition_gets_the_payment_made_last_and_never_a_planted_one() {
    let book = book([
        made(payment(1, "a", 10)),
        made(payment(2, "a", 11)),
        Entry::Duplicate(payment(3, "a", 12)),
    ]);
    assert_eq!(judged(&book, "a", 500, Keys::Honour, at(20)), "replay pay_00000002");
}

#[test]
fn a_removed_payment_is_not_reported_and_frees_its_key() {
    let book = book([made(payment(1, "a", 10)), Entry::Removed { id: Payment::id_of(1) }]);
    assert_eq!(book.payment("pay_00000001"), None);
    assert!(book.list(&Question::default(), 10).0.is_empty());
    assert_eq!(judged(&book, "a", 500, Keys::Honour, at(20)), "fresh");
    assert_eq!(ids(&book.effects()), [1], "it was made all the same");
}

#[test]
fn a_changed_amount_is_reported_and_nothing_else_about_it() {
    let book =
        book([made(payment(1, "a", 10)), Entry::Amount { id: Payment::id_of(1), amount: 700 }]);
    assert_eq!(book.payment("pay_00000001").unwrap().amount, 700);
    assert_eq!(book.effects()[0].amount, 500);
    assert_eq!(judged(&book, "a", 500, Keys::Honour, at(20)), "replay pay_00000001");
}

#[test]
fn pages_go_from_the_oldest_to_the_newest_without_gap_or_repetition() {
    let book = book([
        made(payment(1, "a", 10)),
        made(payment(2, "b", 12)),
        // Dated back: it stands between the two.
        Entry::Foreign(payment(3, "c", 11)),
        made(payment(4, "a", 12)),
    ]);
    let mut question = Question::default();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (payments, next) = book.list(&question, 1);
        seen.extend(ids(&payments));
        question.after = next;
    }
    assert_eq!(seen, [1, 3, 2, 4]);
    assert_eq!(question.after, None, "the last page says that it is the last");
}

#[test]
fn a_question_is_narrowed_by_time_and_key() {
    let book =
        book([made(payment(1, "a", 10)), made(payment(2, "b", 11)), made(payment(3, "a", 12))]);
    let ask = |key: Option<&str>, from: u64, until: u64| {
        let question = Question {
            key: key.map(str::to_owned),
            from: Some(at(from)),
            until: Some(at(until)),
            after: None,
        };
        ids(&book.list(&question, 10).0)
    };
    assert_eq!(ask(None, 10, 12), [1, 2], "from counts, until does not");
    assert_eq!(ask(Some("a"), 10, 13), [1, 3]);
    assert_eq!(ask(Some("a"), 11, 13), [3]);
    assert_eq!(ask(Some("a"), 11, 12), [0; 0]);
    assert_eq!(ask(Some("x"), 0, 99), [0; 0]);
}

#[test]
fn what_makes_no_sense_is_not_taken_in() {
    let mut book = book([made(payment(1, "a", 10))]);
    assert!(book.apply(made(payment(1, "a", 10))).is_err());
    assert!(book.apply(made(payment(3, "a", 10))).is_err());
    assert!(book.apply(Entry::Removed { id: "pay_00000009".to_owned() }).is_err());
    assert!(book.apply(Entry::Removed { id: "pay_00000000".to_owned() }).is_err());
    assert!(book.apply(Entry::Amount { id: "x".to_owned(), amount: 1 }).is_err());
}
