//! What can be wrong with an idempotent API: one mistake each, all of them made by somebody before.

/// Declares the defects once, so that none can be missing in the list or without a name.
macro_rules! defects {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// The one thing that a server does wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Defect {
            $($(#[$doc])* $variant,)+
        }

        impl Defect {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name in reports and test output.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

defects! {
    /// Looks whether the key is there, and puts it there some time later.
    CheckThenInsert = "check-then-insert",
    /// The body is not compared: another one gets the first's answer.
    NoBodyComparison = "no-body-comparison",
    /// The body is part of the key: another one runs.
    RunsOtherBody = "runs-other-body",
    /// The tenant is no part of the record: another one gets the stored answer.
    GlobalKeys = "global-keys",
    /// Another tenant is refused because the key is taken, so it learns that it is.
    TenantExistence = "tenant-existence",
    /// Another tenant is served later because the key is taken.
    TenantTiming = "tenant-timing",
    /// A 5xx is kept and replayed.
    Cached500 = "cached-500",
    /// A replay sets the first caller's cookie.
    ReplayedCookie = "replayed-cookie",
    /// A replay repeats what was meant for the first caller's connection.
    ReplayedHopByHop = "replayed-hop-by-hop",
    /// A replay has no `Location`.
    LostLocation = "lost-location",
    /// A replay is said to be plain text.
    LostContentType = "lost-content-type",
    /// A replay of a 201 is a 200.
    OtherStatus = "other-status",
    /// The body of a replay is made anew, with an id that does not exist.
    NewBodyOnReplay = "new-body-on-replay",
    /// A replay does not say that it is one.
    NoMarker = "no-marker",
    /// No answer says until when it is kept.
    NoExpiryHeader = "no-expiry-header",
    /// Nobody renews a reservation: a handler that runs for longer is run beside itself.
    ///
    /// The record is kept as long as it should be. One that vanished as early as its lock would be
    /// [`Self::ExpiredEarly`] as well, and whether a replay comes in time a matter of luck.
    OneLifetimeShort = "one-lifetime-short",
    /// A reservation stands as long as a record: what a crash leaves blocks the key.
    OneLifetimeLong = "one-lifetime-long",
    /// Records do not survive the process.
    MemoryOnly = "memory-only",
    /// The answer goes out, the key is let go, and the record is written some time later.
    ReplyBeforeRecord = "reply-before-record",
    /// The key is looked up before anybody looks at method, path and query.
    BodyOnlyFingerprint = "body-only-fingerprint",
    /// Numbers are compared as floats, where big integers are the same.
    FloatFingerprint = "float-fingerprint",
    /// Of members with one name the last is compared.
    LastWinsDuplicates = "last-wins-duplicates",
    /// Another body waits for an attempt in flight, and gets its answer.
    InFlightMismatchWaits = "in-flight-mismatch-waits",
    /// A 409 does not say when to come back.
    NoRetryAfter = "no-retry-after",
    /// A rival of an attempt in flight makes the server fail.
    Conflict500 = "conflict-500",
    /// A request without a key runs.
    MissingKeyRuns = "missing-key-runs",
    /// A request without a key makes the server fail.
    MissingKey500 = "missing-key-500",
    /// The empty key is a key like others, bare or quoted.
    EmptyKeyAccepted = "empty-key-accepted",
    /// Of two keys in a request the first counts.
    FirstHeaderWins = "first-header-wins",
    /// A control character in a header makes the server fail.
    ControlCharacters500 = "control-characters-500",
    /// Only the first 200 characters of a key count, and there may be more than 255.
    TruncatedKeys = "truncated-keys",
    /// A key is another one with quotes around it.
    QuotedDiffers = "quoted-differs",
    /// Keys of more than 128 characters are refused.
    Refused255 = "255-refused",
    /// Who knows a key gets its answer, credentials or not.
    AuthAfterReplay = "auth-after-replay",
    /// While the key store is away everything runs unprotected.
    FailsOpen = "fails-open",
    /// The key is reserved before the body is there, and stays so if the body never comes.
    ReservesBeforeBody = "reserves-before-body",
    /// A caller who hangs up takes the record with it, though not the effect.
    ///
    /// As where the effect is committed by itself and the record is written in the context of the
    /// request, which is cancelled.
    CutRunsAgain = "cut-runs-again",
    /// `Expect: 100-continue` is refused with 417.
    ///
    /// A server that merely says nothing would not be noticed: clients send the body after a second
    /// whether they were told to or not.
    IgnoresExpect = "ignores-expect",
    /// The body of a request that is replayed or refused as another one is left in the connection,
    /// and read as the next request.
    UnreadBody = "unread-body",
    /// Records vanish long before the time that their answers tell.
    ExpiredEarly = "expired-early",
}
