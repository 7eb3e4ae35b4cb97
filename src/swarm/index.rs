//! Typed indices into the machine's vectors: an `AttemptIndex` cannot index the stories.
//!
//! An index is only made by the vector that it belongs to, and nothing is ever removed from one, so indexing cannot fail.

use std::marker::PhantomData;
use std::ops;

/// A position in an [`IndexVec`].
pub(super) trait TypedIndex: Copy {
    fn from_position(position: usize) -> Self;
    fn position(self) -> usize;
}

macro_rules! typed_index {
    ($($name:ident),+) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $name(usize);

        impl TypedIndex for $name {
            fn from_position(position: usize) -> Self {
                Self(position)
            }

            fn position(self) -> usize {
                self.0
            }
        }
    )+};
}

typed_index!(StoryIndex, AssignmentIndex, AttemptIndex, BranchIndex);

/// A vector that only `I` indexes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IndexVec<I, T> {
    items: Vec<T>,
    index: PhantomData<fn() -> I>,
}

impl<I: TypedIndex, T> IndexVec<I, T> {
    pub(super) fn new() -> Self {
        Self::from_iter([])
    }

    pub(super) fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::from_position(self.items.len() - 1)
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::from_position)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    pub(super) fn iter_indexed(&self) -> impl Iterator<Item = (I, &T)> {
        self.indices().zip(&self.items)
    }
}

impl<I: TypedIndex, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> Self {
        Self { items: items.into_iter().collect(), index: PhantomData }
    }
}

impl<I: TypedIndex, T> ops::Index<I> for IndexVec<I, T> {
    type Output = T;

    fn index(&self, index: I) -> &T {
        &self.items[index.position()]
    }
}

impl<I: TypedIndex, T> ops::IndexMut<I> for IndexVec<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.items[index.position()]
    }
}
