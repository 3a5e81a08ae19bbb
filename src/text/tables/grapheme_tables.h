/// Properties of characters for grapheme clusters, as the `tokenizers` library has them.
#pragma once

namespace baton::unicode {

/// Grapheme_Cluster_Break, Extended_Pictographic and Indic_Conjunct_Break (UAX 29 and 44), as bits.
enum ClusterProperty : unsigned {
  kClusterControl = 1,  ///< Control, CR and LF
  kClusterExtend = 2,
  kClusterSpacing = 4,  ///< SpacingMark, and the joiner U+200D
  kClusterPrepend = 8,
  kClusterPictographic = 16,
  kClusterConsonant = 32,
  kClusterLinker = 64,
  kClusterConjunctExtend = 128,
};

/// The bits of a character; 0 for most. Hangul and regional indicators have none here.
unsigned cluster_properties(char32_t c);

}  // namespace baton::unicode
