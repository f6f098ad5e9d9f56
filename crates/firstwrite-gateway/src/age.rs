//! Limits the age of a request by a timestamp in its own headers, so that a recorded request that is replayed
//! much later is refused even after its key has been forgotten.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firstwrite_core::codec::hex;
use firstwrite_core::{Rejection, RejectionKind};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderName;
use http::request::Parts;
use sha2::Sha256;

/// Maximum age of a request, by the timestamp that it carries.
#[derive(Clone)]
pub struct AgeLimit {
    /// Header with the timestamp: seconds or milliseconds since 1970, an HTTP date, or RFC 3339.
    pub header: HeaderName,
    /// Maximum age.
    pub max: Duration,
    /// Signature that must prove the timestamp, if one is required.
    pub signed: Option<Signed>,
}

/// A timestamp with a signature: hex of HMAC-SHA-256 over timestamp, method, target and key, joined by
/// line feeds, each as it was sent.
#[derive(Clone)]
pub struct Signed {
    /// Header with the signature.
    pub header: HeaderName,
    /// HMAC key.
    pub secret: Vec<u8>,
}

/// Greatest lead of a client's clock. Clocks of two machines differ by less.
const AHEAD_MAX: Duration = Duration::from_mins(5);
/// Numbers from here on are milliseconds, smaller ones seconds: as seconds, this is the year 5138.
const SECONDS_MAX: u64 = 100_000_000_000;

impl AgeLimit {
    /// Refuses a limit that lets a recorded request in after its key is free again, `free_after` its answer. The
    /// timestamp may have been ahead by as much as clocks may differ.
    pub fn check_against(&self, free_after: Duration) -> Result<(), String> {
        if self.max.saturating_add(AHEAD_MAX) <= free_after {
            return Ok(());
        }
        Err(format!(
            "age.max is {}, and a key is free again after {} (retention and what after_retention adds): with the {} \
             that a timestamp may be ahead, a recorded request would be carried out again after its key was \
             forgotten; make age.max at most {}, or retention longer",
            humantime::format_duration(self.max),
            humantime::format_duration(free_after),
            humantime::format_duration(AHEAD_MAX),
            humantime::format_duration(free_after.saturating_sub(AHEAD_MAX)),
        ))
    }

    /// Refuses a request that is too old, or does not say how old it is.
    pub(crate) fn check(&self, request: &Parts, now: SystemTime) -> Result<(), Rejection> {
        let too_old =
            |detail: &'static str| Err(Rejection::new(RejectionKind::RequestTooOld).detail(detail));
        let mut lines = request.headers.get_all(&self.header).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return too_old("The request must say once when it was made.");
        };
        let Some(made_at) = line.to_str().ok().and_then(moment) else {
            return too_old("When the request was made cannot be read.");
        };
        if let Some(signed) = &self.signed
            && !signed.is_by_its_maker(line.as_bytes(), request)
        {
            return too_old("Nobody vouches for when the request was made.");
        }
        if made_at > now + AHEAD_MAX {
            return too_old("The request was made in the future; check the clock.");
        }
        match now.duration_since(made_at) {
            Ok(age) if age > self.max => {
                too_old("The request was made too long ago; nothing was run.")
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl Signed {
    fn is_by_its_maker(&self, timestamp: &[u8], request: &Parts) -> bool {
        let mut lines = request.headers.get_all(&self.header).iter();
        let (Some(given), None) = (lines.next(), lines.next()) else { return false };
        let Some(given) = hex::decode(given.as_bytes()) else { return false };
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.secret) else { return false };
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
        let key = request.headers.get("idempotency-key").map_or(&[][..], |key| key.as_bytes());
        for (index, part) in [timestamp, request.method.as_str().as_bytes(), target.as_bytes(), key]
            .iter()
            .enumerate()
        {
            if index > 0 {
                mac.update(b"\n");
            }
            mac.update(part);
        }
        mac.verify_slice(&given).is_ok()
    }
}

/// A moment, however it is spelt.
fn moment(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    if let Ok(number) = text.parse::<u64>() {
        let since = if number < SECONDS_MAX {
            Duration::from_secs(number)
        } else {
            Duration::from_millis(number)
        };
        return UNIX_EPOCH.checked_add(since);
    }
    httpdate::parse_http_date(text).ok().or_else(|| humantime::parse_rfc3339(text).ok())
}

impl fmt::Debug for AgeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgeLimit")
            .field("header", &self.header)
            .field("max", &self.max)
            .field("signed", &self.signed)
            .finish()
    }
}

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signed").field("header", &self.header).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    const SECRET: &[u8] = b"a secret of this test";

    fn limit(signed: bool) -> AgeLimit {
        AgeLimit {
            header: HeaderName::from_static("x-made-at"),
            max: Duration::from_mins(10),
            signed: signed.then(|| Signed {
                header: HeaderName::from_static("x-made-by"),
                secret: SECRET.to_vec(),
            }),
        }
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_hours(500_000)
    }

    fn made_at(text: &str) -> Parts {
        let value = HeaderValue::from_str(text).unwrap();
        let request = Request::post("/pay?a=1").header("idempotency-key", "k");
        request.header("x-made-at", value).body(()).unwrap().into_parts().0
    }

    fn is_fine(limit: &AgeLimit, request: &Parts) -> bool {
        match limit.check(request, now()) {
            Ok(()) => true,
            Err(refused) => {
                assert_eq!(refused.kind(), RejectionKind::RequestTooOld);
                false
            }
        }
    }

    #[test]
    fn a_timestamp_may_be_spelt_in_four_ways() {
        for fine in [
            "1800000000",
            "1799999400",
            "1800000000000",
            "1800000300",
            "Fri, 15 Jan 2027 08:00:00 GMT",
            "2027-01-15T08:00:00Z",
        ] {
            assert!(is_fine(&limit(false), &made_at(fine)), "{fine}");
        }
        for wrong in ["1799999399", "1800000301", "", "soon", "-5", "Fri, 15 Jan 2021 08:00:00 GMT"]
        {
            assert!(!is_fine(&limit(false), &made_at(wrong)), "{wrong}");
        }
        let mut twice = made_at("1800000000");
        twice.headers.append("x-made-at", HeaderValue::from_static("1800000000"));
        assert!(!is_fine(&limit(false), &twice));
        let mut none = made_at("1800000000");
        none.headers.clear();
        assert!(!is_fine(&limit(false), &none));
    }

    #[test]
    fn a_signature_binds_the_timestamp_to_the_request() {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET).unwrap();
        mac.update(b"1800000000\nPOST\n/pay?a=1\nk");
        let bytes = mac.finalize().into_bytes();
        let signature = hex::encode(&bytes);
        let mut signed = made_at("1800000000");
        signed.headers.insert("x-made-by", HeaderValue::from_str(&signature).unwrap());
        assert!(is_fine(&limit(true), &signed));
        let mut other_key = signed.clone();
        other_key.headers.insert("idempotency-key", HeaderValue::from_static("k2"));
        let mut other_target = signed.clone();
        other_target.uri = "/pay?a=2".parse().unwrap();
        let mut later = signed.clone();
        later.headers.insert("x-made-at", HeaderValue::from_static("1800000001"));
        let mut unsigned = signed.clone();
        unsigned.headers.remove("x-made-by");
        let mut odd = signed;
        odd.headers.insert("x-made-by", HeaderValue::from_static("abc"));
        for wrong in [other_key, other_target, later, unsigned, odd] {
            assert!(!is_fine(&limit(true), &wrong));
        }
    }
}
