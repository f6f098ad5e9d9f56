//! Methods that a wrapping store passes on.

/// Writes the named methods of [`Store`](crate::Store) so that they call the same method of a field, or of what
/// a method returns: `delegate_store!(inner: get, list)`, `delegate_store!(next(): get, list)`. With a wrapper,
/// each future is passed through it with the method's name: `delegate_store!(inner via counted: get, list)`.
///
/// A table of repetition and nothing else: one arm per method, as the trait has it.
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

    (@capabilities [$($to:tt)+] []) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.$($to)+.capabilities()
        }
    };
    (@insert [$($to:tt)+] $via:tt) => {
        fn insert<'a>(
            &'a self,
            draft: &'a $crate::Draft,
        ) -> $crate::BoxFuture<'a, Result<$crate::Inserted, $crate::StoreError>> {
            $crate::delegate_store!(@through self $via "insert", self.$($to)+.insert(draft))
        }
    };
    (@swap [$($to:tt)+] $via:tt) => {
        fn swap<'a>(
            &'a self,
            id: $crate::RecordId,
            guard: $crate::Guard,
            change: $crate::Change,
            audit: Option<&'a $crate::AuditEntry>,
        ) -> $crate::BoxFuture<'a, Result<$crate::Swapped, $crate::StoreError>> {
            $crate::delegate_store!(
                @through self $via "swap", self.$($to)+.swap(id, guard, change, audit)
            )
        }
    };
    (@get [$($to:tt)+] $via:tt) => {
        fn get(
            &self,
            id: $crate::RecordId,
        ) -> $crate::BoxFuture<'_, Result<Option<$crate::Found>, $crate::StoreError>> {
            $crate::delegate_store!(@through self $via "get", self.$($to)+.get(id))
        }
    };
    (@list [$($to:tt)+] $via:tt) => {
        fn list<'a>(
            &'a self,
            query: &'a $crate::Query,
        ) -> $crate::BoxFuture<'a, Result<$crate::Page, $crate::StoreError>> {
            $crate::delegate_store!(@through self $via "list", self.$($to)+.list(query))
        }
    };
    (@usage [$($to:tt)+] $via:tt) => {
        fn usage(
            &self,
            after: Option<$crate::RecordId>,
            limit: usize,
        ) -> $crate::BoxFuture<'_, Result<$crate::UsagePage, $crate::StoreError>> {
            $crate::delegate_store!(@through self $via "usage", self.$($to)+.usage(after, limit))
        }
    };
    (@reap [$($to:tt)+] $via:tt) => {
        fn reap(
            &self,
            limit: usize,
        ) -> $crate::BoxFuture<'_, Result<usize, $crate::StoreError>> {
            $crate::delegate_store!(@through self $via "reap", self.$($to)+.reap(limit))
        }
    };
    (@audits [$($to:tt)+] $via:tt) => {
        fn audits(
            &self,
            id: $crate::RecordId,
        ) -> $crate::BoxFuture<'_, Result<Vec<$crate::Audited>, $crate::StoreError>> {
            $crate::delegate_store!(@through self $via "audits", self.$($to)+.audits(id))
        }
    };
    (@now [$($to:tt)+] $via:tt) => {
        fn now(&self) -> $crate::BoxFuture<'_, Result<$crate::Timestamp, $crate::StoreError>> {
            $crate::delegate_store!(@through self $via "now", self.$($to)+.now())
        }
    };
    (@check_history [$($to:tt)+] $via:tt) => {
        fn check_history(
            &self,
            id: $crate::RecordId,
        ) -> $crate::BoxFuture<'_, Result<(), $crate::StoreError>> {
            $crate::delegate_store!(
                @through self $via "check_history", self.$($to)+.check_history(id)
            )
        }
    };
    (@outbox [$($to:tt)+] []) => {
        fn outbox(&self) -> Option<&dyn $crate::outbox::Outbox> {
            self.$($to)+.outbox()
        }
    };
    (@documents [$($to:tt)+] []) => {
        fn documents(&self) -> Option<&dyn $crate::Documents> {
            self.$($to)+.documents()
        }
    };

    (@through $this:ident [] $name:literal, $call:expr) => {
        $call
    };
    (@through $this:ident [$wrapper:ident] $name:literal, $call:expr) => {
        $this.$wrapper($name, $call)
    };
}
