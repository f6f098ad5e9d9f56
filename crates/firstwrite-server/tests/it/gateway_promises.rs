//! What a gateway promises, shown from outside: real processes, real sockets, real stores, and an API that
//! counts what it did.
//!
//! | promise | proof |
//! | --- | --- |
//! | 1: one effect for each key | [`one_effect`] |
//! | 2: every answer is the first one, byte for byte, or a refusal | [`answers`] |
//! | 3: tenants never meet | [`strangers`] |
//! | 4: another request under a used key never runs | [`strangers`] |
//! | 5: nothing reaches the API that could not be reserved | [`store_away`] |
//! | 6: a crash blocks a key no longer than its lease | [`leases`], and `gateway_kills` for every state |
//! | 7: a late owner overwrites nothing | [`leases`] |
//! | 10: no 5xx, cookie or secret is replayed, and no key is logged | [`answers`] |
//! | 12: everything has a limit and a clear answer | [`limits`] |

mod answers;
mod leases;
mod limits;
mod one_effect;
mod store_away;
mod strangers;
