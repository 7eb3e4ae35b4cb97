//! Aligns rows of text in columns by their display width.
//!
//! Used by the commands that list things and by the final summary. Must not: write anything, or sanitize cells.

use super::text::{display_width, pad_to_width, truncate_to_width};

const GAP: usize = 2;
/// The narrowest that [`Table::fit`] makes a column.
const MIN_FITTED_WIDTH: usize = 12;

/// Rows of `N` cells, the last of which is not padded.
#[derive(Debug)]
pub struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    max_padding: [usize; N],
    fitted: Option<(usize, usize)>,
}

impl<const N: usize> Table<N> {
    /// A table without a head row.
    pub fn without_head() -> Self {
        Self { rows: Vec::new(), max_padding: [usize::MAX; N], fitted: None }
    }

    /// A table whose first row is `head`.
    pub fn new(head: [&str; N]) -> Self {
        let mut table = Self::without_head();
        table.push(head.map(str::to_owned));
        table
    }

    /// Appends a row.
    pub fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Pads `column` to at most `width`. Longer cells push the rest of their row to the right.
    #[must_use]
    pub fn pad_at_most(mut self, column: usize, width: usize) -> Self {
        self.max_padding[column] = width;
        self
    }

    /// Truncates `column` so that rows take at most `total` columns of the terminal, as far as that is possible.
    #[must_use]
    pub fn fit(mut self, column: usize, total: usize) -> Self {
        self.fitted = Some((column, total));
        self
    }

    /// Renders one line per row, without trailing spaces.
    pub fn render(&self) -> String {
        self.render_styled(|_, _, cell| cell)
    }

    /// Renders with `style` applied to each padded cell. It gets the row (the head is row 0), the column and the text.
    pub fn render_styled(&self, style: impl Fn(usize, usize, String) -> String) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                widths[column] = display_width(cell).min(self.max_padding[column]).max(widths[column]);
            }
        }
        if let Some((column, total)) = self.fitted {
            let others = widths.iter().sum::<usize>() - widths[column] + GAP * (N - 1);
            widths[column] = widths[column].min(total.saturating_sub(others).max(MIN_FITTED_WIDTH));
        }
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let cell = match self.fitted {
                    Some((fitted, _)) if fitted == column => truncate_to_width(cell, widths[column]),
                    _ => cell.clone(),
                };
                let padded = if column + 1 == N { cell } else { pad_to_width(&cell, widths[column]) + "  " };
                out.push_str(&style(number, column, padded));
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<const N: usize>(cells: [&str; N]) -> [String; N] {
        cells.map(str::to_owned)
    }

    #[test]
    fn columns_are_aligned_by_display_width() {
        let mut table = Table::new(["NAME", "VALUE", "FROM"]);
        table.push(row(["漢字", "1", "a"]));
        table.push(row(["x", "a long value", ""]));
        let text = "NAME  VALUE         FROM\n漢字  1             a\nx     a long value\n";
        assert_eq!(table.render(), text);
        let text = "NAME  VALUE  FROM\n漢字  1      a\nx     a long value\n";
        assert_eq!(table.pad_at_most(1, 5).render(), text);
    }

    #[test]
    fn fitted_column_is_truncated() {
        let mut table = Table::new(["ID", "TITLE", "END"]);
        table.push(row(["1", "a title that is too long for it", "x"]));
        assert_eq!(table.fit(1, 22).render(), "ID  TITLE          END\n1   a title that…  x\n");
    }

    #[test]
    fn style_applies_to_padded_cells() {
        let mut table = Table::new(["A", "B"]);
        table.push(row(["1", "2"]));
        let text = table.render_styled(|number, _, cell| if number == 0 { format!("<{cell}>") } else { cell });
        assert_eq!(text, "<A  ><B>\n1  2\n");
    }
}
