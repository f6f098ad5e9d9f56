//! Settings of a list by HTTP, each with its default, and what they must hold to.

use std::fmt;
use std::time::Duration;

use firstwrite_core::Pointer;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::HttpListSource;
use crate::carrier::http::getting::{GetSettings, Getter, check};
use crate::carrier::http::{HttpDestination, HttpDestinationError, Network};
use crate::probe::list_end::is_within;
use crate::reconcile::entry::{Made, Reading, TimeForm};

/// Settings of a list, over HTTP, of what a provider did.
///
/// Each method sets one thing and documents its default; [`build`](Self::build) checks the whole.
///
/// ```
/// use firstwrite::reconcile::{HttpItems, HttpList, Made, Paging};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let items = HttpItems {
///     key: Some("/idempotency_key".parse()?),
///     amount: Some("/amount".parse()?),
///     currency: Some("/currency".parse()?),
///     ..HttpItems::new(
///         "/data".parse()?,
///         "/id".parse()?,
///         "/created_at".parse()?,
///         Made::by_status("/status".parse()?, &["paid"], &["failed", "declined"]),
///     )
/// };
/// let url = "http://api.example.com/v1/payments?from={from}&until={until}&after={cursor}";
/// let list = HttpList::new(url, items, Paging::Next("/next".parse()?)).build()?;
/// # let _ = list;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "settings do nothing until they are built"]
pub struct HttpList {
    template: String,
    items: HttpItems,
    paging: Paging,
    harmless: Vec<Pointer>,
    reading: Reading,
    get: GetSettings,
}

/// Way in which a page shows whether there is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paging {
    /// By the cursor of the next page, at this place; null in the last page. An empty text is a flaw.
    Next(Pointer),
    /// The same, where an empty text stands in the last page too.
    NextOrEmpty(Pointer),
    /// By a flag, at this place. While it is true, the id of a page's last item leads to the next.
    LastId {
        /// Place of the flag.
        more: Pointer,
    },
    /// Not at all: there is one page, and everything is in it.
    SinglePage,
}

/// Places of the items in a page, and of the values in an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpItems {
    /// The array of items, seen from the page. All others are seen from the item.
    pub list: Pointer,
    /// The provider's id: a text or a whole number.
    pub id: Pointer,
    /// The key it was made under.
    pub key: Option<Pointer>,
    /// The amount: a text or a number, taken digit for digit.
    pub amount: Option<Pointer>,
    /// The currency.
    pub currency: Option<Pointer>,
    /// The time.
    pub at: Pointer,
    /// Selects the items that were made.
    pub made: Made<Pointer>,
}

impl Paging {
    /// Returns the place of the member that shows whether there is another page.
    pub(super) fn place(&self) -> Option<&Pointer> {
        match self {
            Self::SinglePage => None,
            Self::Next(place) | Self::NextOrEmpty(place) | Self::LastId { more: place } => {
                Some(place)
            }
        }
    }
}

impl HttpItems {
    /// Gives the places that every list must have, and tells which of its items were made.
    pub fn new(list: Pointer, id: Pointer, at: Pointer, made: Made<Pointer>) -> Self {
        Self { list, id, key: None, amount: None, currency: None, at, made }
    }
}

impl HttpList {
    /// A page of a thousand payments, each a few kilobytes.
    pub const PAGE_BYTES_MAX_DEFAULT: usize = 16 * 1024 * 1024;

    /// Makes a list. In `url_template`, `{from}` and `{until}` are replaced by the beginning and the end of the
    /// window, and `{cursor}` by the cursor of the next page; a query parameter that contains `{cursor}` is
    /// left out for the first page.
    pub fn new(url_template: &str, items: HttpItems, paging: Paging) -> Self {
        Self {
            template: url_template.to_owned(),
            items,
            paging,
            harmless: Vec::new(),
            reading: Reading::default(),
            get: GetSettings {
                timeout: HttpDestination::TIMEOUT_DEFAULT,
                connect_timeout: HttpDestination::CONNECT_TIMEOUT_DEFAULT,
                headers: HeaderMap::new(),
                answer_bytes_max: Self::PAGE_BYTES_MAX_DEFAULT,
                allowed_networks: Vec::new(),
                root_certificates: Vec::new(),
            },
        }
    }

    /// Sets the form of times, in items and in the URL; RFC 3339 unless set.
    pub fn times(mut self, form: TimeForm) -> Self {
        self.reading.time = form;
        self
    }

    /// Multiplies amounts by a power of ten: 2 where the list has euros and messages have cents. 0 unless
    /// set.
    pub fn amount_power(mut self, power: i32) -> Self {
        self.reading.amount_power = power;
        self
    }

    /// Names a place in a page whose value says nothing about whether the list ends. None unless set: then
    /// everything in the last page besides its list must be known to be harmless.
    pub fn harmless(mut self, place: Pointer) -> Self {
        self.harmless.push(place);
        self
    }

    /// Adds a header to every request. Every value is treated as a secret.
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.get.headers.append(name, value);
        self
    }

    /// Sets the time that one page may take; 30 seconds unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.get.timeout = timeout;
        self
    }

    /// Sets the maximum length of a page in bytes; 16 MiB unless set.
    pub fn page_bytes_max(mut self, bytes: usize) -> Self {
        self.get.answer_bytes_max = bytes;
        self
    }

    /// Lets the list be asked for at addresses of `network` although they are not public. None unless
    /// set.
    pub fn allow_network(mut self, network: Network) -> Self {
        self.get.allowed_networks.push(network);
        self
    }

    /// Certificates (PEM) to trust besides those of the platform. None unless set.
    pub fn root_certificates(mut self, pem: &[u8]) -> Self {
        self.get.root_certificates = pem.to_vec();
        self
    }

    /// Checks the settings and makes the source.
    pub fn build(self) -> Result<HttpListSource, HttpDestinationError> {
        // A name that no template has by chance, and that is the same encoded or not.
        const MARK: &str = "firstwrite-stands-here";
        let filled = ["{from}", "{until}", "{cursor}"]
            .iter()
            .fold(self.template.clone(), |url, place| url.replace(place, MARK));
        let uri = check(&filled, "the list's URL")?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains(MARK)) {
            return Err(HttpDestinationError::new("the list's host does not depend on the page"));
        }
        let in_query = self
            .template
            .split_once('?')
            .is_some_and(|(path, query)| query.contains("{cursor}") && !path.contains("{cursor}"));
        let has_cursor = self.template.contains("{cursor}");
        let has_pages = self.paging != Paging::SinglePage;
        if has_pages != has_cursor || (has_cursor && !in_query) {
            return Err(HttpDestinationError::new(
                "a list of several pages has {cursor} in its URL's query, and no other has",
            ));
        }
        if self.harmless.iter().any(|place| place.as_str().is_empty()) {
            return Err(HttpDestinationError::new(
                "harmless: name places in the page, such as \"/meta/took\"",
            ));
        }
        let declared = [Some(&self.items.list), self.paging.place()];
        let covers = |harmless: &Pointer| {
            declared.into_iter().flatten().any(|place| is_within(place, harmless))
        };
        if self.harmless.iter().any(covers) {
            return Err(HttpDestinationError::new(
                "harmless: the list, the paging member and what they stand in say whether the list ends",
            ));
        }
        if self.paging.place().is_some_and(|place| is_within(place, &self.items.list)) {
            return Err(HttpDestinationError::new(
                "the paging member, next or more, stands beside the list and not in it",
            ));
        }
        let is_https = uri.scheme_str() == Some("https");
        Ok(HttpListSource {
            getter: Getter::new(self.get, is_https)?,
            template: self.template,
            items: self.items,
            paging: self.paging,
            harmless: self.harmless,
            reading: self.reading,
        })
    }
}

/// The URL of the first page.
pub(super) fn without_cursor(template: &str) -> String {
    let Some((path, query)) = template.split_once('?') else { return template.to_owned() };
    let parameters: Vec<&str> =
        query.split('&').filter(|parameter| !parameter.contains("{cursor}")).collect();
    if parameters.is_empty() {
        return path.to_owned();
    }
    format!("{path}?{}", parameters.join("&"))
}

impl fmt::Debug for HttpList {
    /// Without what may be a secret: the URL and headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpList")
            .field("items", &self.items)
            .field("paging", &self.paging)
            .field("harmless", &self.harmless)
            .field("allowed_networks", &self.get.allowed_networks)
            .finish_non_exhaustive()
    }
}
