//! Macros for implementations of [`Store`](crate::Store), [`Outbox`](crate::outbox::Outbox) and
//! [`Documents`](crate::Documents), so that each signature stands here once.

/// Writes methods of [`Store`](crate::Store), each from the future of its answer, which it boxes:
/// `store_methods!(self; get(id) => self.find(id), now() => self.read_clock())`. `capabilities`, `outbox` and
/// `documents` are written from their answer.
///
/// A table of repetition and nothing else: one arm per method, as the trait has it.
#[doc(hidden)]
#[macro_export]
macro_rules! store_methods {
    ($this:ident; $($method:ident($($given:ident),*) => $answer:expr),+ $(,)?) => {
        $($crate::store_methods!(@boxed $method $this ($($given),*) $answer);)+
    };

    (@boxed capabilities $this:ident () $answer:expr) => {
        $crate::store_methods!(@capabilities $this () $answer);
    };
    (@boxed outbox $this:ident () $answer:expr) => {
        $crate::store_methods!(@outbox $this () $answer);
    };
    (@boxed documents $this:ident () $answer:expr) => {
        $crate::store_methods!(@documents $this () $answer);
    };
    (@boxed $method:ident $this:ident $given:tt $future:expr) => {
        $crate::store_methods!(@$method $this $given ::std::boxed::Box::pin($future));
    };

    (@capabilities $this:ident () $answer:expr) => {
        fn capabilities(&$this) -> $crate::Capabilities {
            $answer
        }
    };
    (@insert $this:ident ($draft:ident) $answer:expr) => {
        fn insert<'a>(
            &'a $this,
            $draft: &'a $crate::Draft,
        ) -> $crate::BoxFuture<'a, Result<$crate::Inserted, $crate::StoreError>> {
            $answer
        }
    };
    (@swap $this:ident ($id:ident, $guard:ident, $change:ident, $audit:ident) $answer:expr) => {
        fn swap<'a>(
            &'a $this,
            $id: $crate::RecordId,
            $guard: $crate::Guard,
            $change: $crate::Change,
            $audit: Option<&'a $crate::AuditEntry>,
        ) -> $crate::BoxFuture<'a, Result<$crate::Swapped, $crate::StoreError>> {
            $answer
        }
    };
    (@get $this:ident ($id:ident) $answer:expr) => {
        fn get(
            &$this,
            $id: $crate::RecordId,
        ) -> $crate::BoxFuture<'_, Result<Option<$crate::Found>, $crate::StoreError>> {
            $answer
        }
    };
    (@list $this:ident ($query:ident) $answer:expr) => {
        fn list<'a>(
            &'a $this,
            $query: &'a $crate::Query,
        ) -> $crate::BoxFuture<'a, Result<$crate::Page, $crate::StoreError>> {
            $answer
        }
    };
    (@usage $this:ident ($after:ident, $limit:ident) $answer:expr) => {
        fn usage(
            &$this,
            $after: Option<$crate::RecordId>,
            $limit: usize,
        ) -> $crate::BoxFuture<'_, Result<$crate::UsagePage, $crate::StoreError>> {
            $answer
        }
    };
    (@reap $this:ident ($limit:ident) $answer:expr) => {
        fn reap(
            &$this,
            $limit: usize,
        ) -> $crate::BoxFuture<'_, Result<usize, $crate::StoreError>> {
            $answer
        }
    };
    (@audits $this:ident ($id:ident) $answer:expr) => {
        fn audits(
            &$this,
            $id: $crate::RecordId,
        ) -> $crate::BoxFuture<'_, Result<Vec<$crate::Audited>, $crate::StoreError>> {
            $answer
        }
    };
    (@now $this:ident () $answer:expr) => {
        fn now(&$this) -> $crate::BoxFuture<'_, Result<$crate::Timestamp, $crate::StoreError>> {
            $answer
        }
    };
    (@check_history $this:ident ($id:ident) $answer:expr) => {
        fn check_history(
            &$this,
            $id: $crate::RecordId,
        ) -> $crate::BoxFuture<'_, Result<(), $crate::StoreError>> {
            $answer
        }
    };
    (@outbox $this:ident () $answer:expr) => {
        fn outbox(&$this) -> Option<&dyn $crate::outbox::Outbox> {
            $answer
        }
    };
    (@documents $this:ident () $answer:expr) => {
        fn documents(&$this) -> Option<&dyn $crate::Documents> {
            $answer
        }
    };
}

/// Writes methods of [`Store`](crate::Store) that call the same method of a field, or of what a method returns:
/// `delegate_store!(inner: get, list)`, `delegate_store!(next(): get, list)`. With a wrapper, each future is passed
/// through it with the method's name: `delegate_store!(inner via counted: get, list)`.
#[doc(hidden)]
#[macro_export]
macro_rules! delegate_store {
    ($field:ident: $($method:ident),+ $(,)?) => {
        $($crate::delegate_store!(@$method [$field] []);)+
    };
    ($getter:ident(): $($method:ident),+ $(,)?) => {
        $($crate::delegate_store!(@$method [$getter()] []);)+
    };
    ($field:ident via $wrapper:ident: $($method:ident),+ $(,)?) => {
        $($crate::delegate_store!(@$method [$field] [$wrapper]);)+
    };

    (@insert $to:tt $via:tt) => { $crate::delegate_store!(@call insert(draft) $to $via); };
    (@swap $to:tt $via:tt) => {
        $crate::delegate_store!(@call swap(id, guard, change, audit) $to $via);
    };
    (@get $to:tt $via:tt) => { $crate::delegate_store!(@call get(id) $to $via); };
    (@list $to:tt $via:tt) => { $crate::delegate_store!(@call list(query) $to $via); };
    (@usage $to:tt $via:tt) => { $crate::delegate_store!(@call usage(after, limit) $to $via); };
    (@reap $to:tt $via:tt) => { $crate::delegate_store!(@call reap(limit) $to $via); };
    (@audits $to:tt $via:tt) => { $crate::delegate_store!(@call audits(id) $to $via); };
    (@check_history $to:tt $via:tt) => {
        $crate::delegate_store!(@call check_history(id) $to $via);
    };
    // Those without arguments.
    (@$method:ident $to:tt $via:tt) => { $crate::delegate_store!(@call $method() $to $via); };

    (@call $method:ident($($given:ident),*) [$($to:tt)+] []) => {
        $crate::store_methods!(@$method self ($($given),*) self.$($to)+.$method($($given),*));
    };
    (@call $method:ident($($given:ident),*) [$($to:tt)+] [$wrapper:ident]) => {
        $crate::store_methods!(
            @$method self ($($given),*)
            self.$wrapper(stringify!($method), self.$($to)+.$method($($given),*))
        );
    };
}

/// Writes the methods of [`Outbox`](crate::outbox::Outbox), each from the future of its answer, which it boxes:
/// `outbox_methods!(self; enqueue(message) => self.write(message), …)`.
#[doc(hidden)]
#[macro_export]
macro_rules! outbox_methods {
    ($this:ident; $($method:ident($($given:ident),*) => $future:expr),+ $(,)?) => {
        $($crate::outbox_methods!(@$method $this ($($given),*) ::std::boxed::Box::pin($future));)+
    };

    (@enqueue $this:ident ($message:ident) $answer:expr) => {
        fn enqueue<'a>(
            &'a $this,
            $message: &'a $crate::Message,
        ) -> $crate::BoxFuture<'a, Result<(), $crate::StoreError>> {
            $answer
        }
    };
    (@claim $this:ident ($requests:ident, $nonce:ident) $answer:expr) => {
        fn claim<'a>(
            &'a $this,
            $requests: &'a [$crate::outbox::ClaimRequest],
            $nonce: u64,
        ) -> $crate::BoxFuture<'a, Result<$crate::outbox::Claimed, $crate::StoreError>> {
            $answer
        }
    };
    (@apply $this:ident ($receipts:ident, $moves:ident) $answer:expr) => {
        fn apply<'a>(
            &'a $this,
            $receipts: &'a [$crate::outbox::HistoryRow],
            $moves: &'a [$crate::outbox::Move],
        ) -> $crate::BoxFuture<'a, Result<Vec<$crate::outbox::ClaimStatus>, $crate::StoreError>> {
            $answer
        }
    };
    (@put_destination $this:ident ($destination:ident, $change:ident) $answer:expr) => {
        fn put_destination<'a>(
            &'a $this,
            $destination: &'a str,
            $change: &'a $crate::outbox::DestinationChange,
        ) -> $crate::BoxFuture<'a, Result<(), $crate::StoreError>> {
            $answer
        }
    };
    (@destinations $this:ident () $answer:expr) => {
        fn destinations(
            &$this,
        ) -> $crate::BoxFuture<'_, Result<Vec<$crate::outbox::DestinationView>, $crate::StoreError>>
        {
            $answer
        }
    };
    (@message $this:ident ($number:ident) $answer:expr) => {
        fn message(
            &$this,
            $number: $crate::outbox::MessageNumber,
        ) -> $crate::BoxFuture<'_, Result<Option<$crate::outbox::MessageStory>, $crate::StoreError>>
        {
            $answer
        }
    };
    (@scan $this:ident ($scan:ident) $answer:expr) => {
        fn scan<'a>(
            &'a $this,
            $scan: &'a $crate::outbox::Scan,
        ) -> $crate::BoxFuture<'a, Result<$crate::outbox::ScanPage, $crate::StoreError>> {
            $answer
        }
    };
    (@upkeep $this:ident ($kept_for:ident, $limit:ident) $answer:expr) => {
        fn upkeep(
            &$this,
            $kept_for: ::std::time::Duration,
            $limit: usize,
        ) -> $crate::BoxFuture<'_, Result<usize, $crate::StoreError>> {
            $answer
        }
    };
    (@wait_for_work $this:ident () $answer:expr) => {
        fn wait_for_work(&$this) -> $crate::BoxFuture<'_, ()> {
            $answer
        }
    };
}

/// Writes the methods of [`Documents`](crate::Documents), each from the future of its answer, which it boxes:
/// `documents_methods!(self; read(kind, names) => self.find(kind, names), …)`.
#[doc(hidden)]
#[macro_export]
macro_rules! documents_methods {
    ($this:ident; $($method:ident($($given:ident),*) => $future:expr),+ $(,)?) => {
        $($crate::documents_methods!(
            @$method $this ($($given),*) ::std::boxed::Box::pin($future)
        );)+
    };

    (@read $this:ident ($kind:ident, $names:ident) $answer:expr) => {
        fn read<'a>(
            &'a $this,
            $kind: &'a str,
            $names: &'a [$crate::documents::DocumentName],
        ) -> $crate::BoxFuture<'a, Result<$crate::documents::FoundDocuments, $crate::StoreError>>
        {
            $answer
        }
    };
    (@put $this:ident ($kind:ident, $changes:ident) $answer:expr) => {
        fn put<'a>(
            &'a $this,
            $kind: &'a str,
            $changes: &'a [$crate::documents::DocumentChange],
        ) -> $crate::BoxFuture<'a, Result<$crate::documents::WrittenDocuments, $crate::StoreError>>
        {
            $answer
        }
    };
    (@scan $this:ident ($kind:ident, $scan:ident) $answer:expr) => {
        fn scan<'a>(
            &'a $this,
            $kind: &'a str,
            $scan: $crate::documents::DocumentScan,
        ) -> $crate::BoxFuture<'a, Result<$crate::documents::DocumentPage, $crate::StoreError>> {
            $answer
        }
    };
}
