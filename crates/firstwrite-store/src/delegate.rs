//! Methods that a wrapping store passes on unchanged.

/// Writes the named methods of `Store` so that they call the same method of a field.
///
/// A table of repetition and nothing else: each line is the method as the trait has it.
macro_rules! delegate {
    ($field:ident: $($method:ident),+) => { $($crate::delegate::delegate!(@$method $field);)+ };
    (@capabilities $field:ident) => {
        fn capabilities(&self) -> firstwrite_core::Capabilities {
            self.$field.capabilities()
        }
    };
    (@lapsed $field:ident) => {
        fn lapsed(
            &self,
            limit: usize,
        ) -> firstwrite_core::BoxFuture<
            '_,
            Result<Vec<firstwrite_core::Found>, firstwrite_core::StoreError>,
        > {
            self.$field.lapsed(limit)
        }
    };
    (@list $field:ident) => {
        fn list<'a>(
            &'a self,
            query: &'a firstwrite_core::Query,
        ) -> firstwrite_core::BoxFuture<
            'a,
            Result<firstwrite_core::Page, firstwrite_core::StoreError>,
        > {
            self.$field.list(query)
        }
    };
    (@usage $field:ident) => {
        fn usage(
            &self,
            after: Option<firstwrite_core::RecordId>,
            limit: usize,
        ) -> firstwrite_core::BoxFuture<
            '_,
            Result<firstwrite_core::UsagePage, firstwrite_core::StoreError>,
        > {
            self.$field.usage(after, limit)
        }
    };
    (@reap $field:ident) => {
        fn reap(
            &self,
            limit: usize,
        ) -> firstwrite_core::BoxFuture<'_, Result<usize, firstwrite_core::StoreError>> {
            self.$field.reap(limit)
        }
    };
    (@audits $field:ident) => {
        fn audits(
            &self,
            id: firstwrite_core::RecordId,
        ) -> firstwrite_core::BoxFuture<
            '_,
            Result<Vec<firstwrite_core::Audited>, firstwrite_core::StoreError>,
        > {
            self.$field.audits(id)
        }
    };
    (@now $field:ident) => {
        fn now(
            &self,
        ) -> firstwrite_core::BoxFuture<
            '_,
            Result<firstwrite_core::Timestamp, firstwrite_core::StoreError>,
        > {
            self.$field.now()
        }
    };
    (@check_history $field:ident) => {
        fn check_history(
            &self,
            id: firstwrite_core::RecordId,
        ) -> firstwrite_core::BoxFuture<'_, Result<(), firstwrite_core::StoreError>> {
            self.$field.check_history(id)
        }
    };
    (@answers_within $field:ident) => {
        fn answers_within(&self) -> Option<std::time::Duration> {
            self.$field.answers_within()
        }
    };
    (@outbox $field:ident) => {
        fn outbox(&self) -> Option<&dyn firstwrite_core::outbox::Outbox> {
            self.$field.outbox()
        }
    };
    (@documents $field:ident) => {
        fn documents(&self) -> Option<&dyn firstwrite_core::Documents> {
            self.$field.documents()
        }
    };
}

pub(crate) use delegate;
