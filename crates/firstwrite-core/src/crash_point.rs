//! Named places at which a test kills the process.
//!
//! A point is nothing at all unless the feature `crash-points` is on. With it, the environment's
//! `FIRSTWRITE_CRASH_AT=name:nth` has the process send itself `SIGKILL` when it passes that point for
//! the nth time, counted from 1; `list:0` has it say on standard error which points it passes. It is the one place of this crate that reads the environment, and
//! no build that somebody runs has it.

/// Marks a place where a death is of interest, by a name that no other place has.
#[cfg(feature = "crash-points")]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::crash_point::pass($name)
    };
}

/// Marks a place where a death is of interest, by a name that no other place has.
#[cfg(not(feature = "crash-points"))]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}

#[cfg(feature = "crash-points")]
pub use chosen::pass;

#[cfg(feature = "crash-points")]
mod chosen {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    /// Where to die, and how often that place was passed.
    struct Chosen {
        name: String,
        nth: u64,
        passed: AtomicU64,
    }

    /// Nothing goes on behind this point. But somebody who was told too early that it had been passed
    /// gets the time to act on it, so that the mistake shows.
    const GRACE: Duration = Duration::from_millis(20);

    static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();

    /// Goes on, or dies here.
    pub fn pass(name: &str) {
        let Some(chosen) = CHOSEN.get_or_init(read) else { return };
        if chosen.nth == 0 {
            // Nobody is left to be told that standard error is closed.
            drop(writeln!(std::io::stderr(), "passed {name}"));
        }
        if chosen.name == name && chosen.passed.fetch_add(1, Ordering::Relaxed) + 1 == chosen.nth {
            std::thread::park_timeout(GRACE);
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            // The signal is on its way; nothing more may happen here before it arrives.
            loop {
                std::thread::park();
            }
        }
    }

    fn read() -> Option<Chosen> {
        let text = std::env::var("FIRSTWRITE_CRASH_AT").ok()?;
        let (name, nth) = text.rsplit_once(':').expect("FIRSTWRITE_CRASH_AT is name:nth");
        let nth = nth.parse().expect("FIRSTWRITE_CRASH_AT ends in a number");
        Some(Chosen { name: name.to_owned(), nth, passed: AtomicU64::new(0) })
    }
}
