//! Seeds of property tests.

/// Environment variable that gives a property test the seed of a run that failed.
const SEED_SET: &str = "FIRSTWRITE_TEST_SEED";

/// The seed of a property test: a fresh one in each run, or the one that `FIRSTWRITE_TEST_SEED` names. It is printed,
/// so that a run that failed can be repeated.
///
/// # Panics
///
/// If the variable is set and is no number.
#[expect(clippy::print_stdout, reason = "cargo shows it beside the failure of the test")]
#[must_use]
pub fn seed() -> u64 {
    let seed = seed_of(std::env::var(SEED_SET).ok().as_deref());
    println!("seed {seed} ({SEED_SET}={seed} repeats it)");
    seed
}

fn seed_of(given: Option<&str>) -> u64 {
    match given {
        Some(text) => text.trim().parse().unwrap_or_else(|_| panic!("{SEED_SET} is a number")),
        None => fastrand::u64(..),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_was_printed_can_be_given_back() {
        assert_eq!(seed_of(Some(&u64::MAX.to_string())), u64::MAX);
        assert_eq!(seed_of(Some(" 7\n")), 7);
        assert_ne!(seed_of(None), seed_of(None));
    }

    #[test]
    #[should_panic(expected = "FIRSTWRITE_TEST_SEED is a number")]
    fn a_seed_that_is_no_number_is_not_taken_for_none() {
        seed_of(Some("0x7"));
    }
}
