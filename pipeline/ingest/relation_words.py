"""The verbs and nouns that state a relation between the names around them, and the words that take a statement back."""

from __future__ import annotations

from pipeline.ingest.lexicon import words

ACTIVE: dict[str, str] = {
    form: relation
    for relation, forms in {
        "FOUNDED": "founded founds co-founded cofounded established establishes",
        "CREATED": "created creates co-created invented invents devised",
        "DESIGNED": "designed designs",
        "DEVELOPED": "developed develops co-developed",
        "BUILT": "built builds constructed",
        "WROTE": "wrote writes authored co-wrote penned",
        "COMPOSED": "composed composes",
        "DIRECTED": "directed directs co-directed",
        "PRODUCED": "produced produces co-produced",
        "PUBLISHED": "published publishes",
        "RELEASED": "released releases",
        "RECORDED": "recorded records",
        "PERFORMED": "performed performs sang",
        "PAINTED": "painted",
        "DISCOVERED": "discovered discovers",
        "ACQUIRED": "acquired acquires bought buys purchased purchases",
        "OWNS": "owns owned",
        "OPERATES": "operates operated runs ran",
        "MANAGES": "manages managed",
        "MAINTAINS": "maintains maintained",
        "LED": "led leads headed heads chaired chairs commanded commands",
        "GOVERNS": "governed governs ruled rules administers administered",
        "MARRIED": "married marries wed",
        "DEFEATED": "defeated defeats beat beats",
        "SUCCEEDED": "succeeded succeeds",
        "REPLACED": "replaced replaces superseded supersedes",
        "FOLLOWS": "followed follows",
        "JOINED": "joined joins",
        "LEFT": "left",
        "ATTENDED": "attended attends",
        "WON": "won wins received",
        "HOSTED": "hosted hosts presented presents",
        "PORTRAYED": "portrayed portrays played plays voiced voices",
        "STARS": "stars starring features featuring featured",
        "EDITED": "edited edits",
        "INFLUENCED": "influenced influences inspired inspires",
        "MANUFACTURES": "manufactured manufactures makes distributes distributed",
        "SOLD": "sold sells",
        "BORDERS": "borders bordered bordering adjoins",
        "CONQUERED": "conquered invaded annexed captured",
        "KILLED": "killed assassinated murdered",
        "APPOINTED": "appointed appoints hired hires named nominated",
        "TAUGHT": "taught teaches coached coaches trained",
        "REPRESENTS": "represented represents",
        "SPONSORS": "sponsored sponsors funded funds",
        "EMPLOYS": "employs employed",
        "CONTAINS": "contains contained includes included comprises comprised",
        "USES": "uses used using",
        "REQUIRES": "requires required needs",
        "SUPPORTS": "supports supported",
        "PROVIDES": "provides provided offers offered",
        "EXTENDS": "extends extended inherits",
        "IMPLEMENTS": "implements implemented",
        "CALLS": "calls invokes",
        "IMPORTS": "imports imported",
        "STORES": "stores stored",
        "STARTS": "starts started launched launches",
    }.items()
    for form in forms.split()
}
"""What a subject does to an object, by past and present forms of the verb."""

PASSIVE: dict[str, str] = ACTIVE | {
    "written": "WROTE",
    "co-written": "WROTE",
    "sung": "PERFORMED",
    "run": "OPERATES",
    "beaten": "DEFEATED",
    "made": "MANUFACTURES",
    "preceded": "PRECEDES",
    "called": "CALLS",
    "driven": "DRIVES",
    "set": "FOUNDED",
}
"""The same read backwards, by the participle before "by"."""

WITH_PREPOSITION: dict[tuple[str, str], str] = {
    (verb, preposition): relation
    for relation, verbs, prepositions in (
        ("BORN", "born", "in on at near"),
        ("DIED", "died", "in on at near"),
        ("FOUNDED", "founded established incorporated formed created", "in on at"),
        ("BUILT", "built constructed completed opened", "in on at"),
        ("RELEASED", "released published launched premiered recorded", "in on at"),
        ("HELD", "held", "in on at"),
        ("LOCATED", "located situated lies lie stands set", "in on at within"),
        ("NEAR", "located situated lies", "near"),
        ("BASED", "based headquartered", "in at"),
        ("PART_OF", "belongs belonged belonging", "to"),
        ("NAMED_AFTER", "named", "after for"),
        ("ALSO_KNOWN_AS", "known called abbreviated renamed nicknamed", "as to"),
        ("BASED_ON", "based built", "on upon"),
        ("APPEARED", "appeared appears starred stars featured", "in on at"),
        ("LIVED", "lived lives resided resides settled", "in at"),
        ("MOVED_TO", "moved relocated emigrated", "to"),
        ("GREW_UP", "grew", "up in"),
        ("STUDIED", "studied educated enrolled taught", "at in"),
        ("GRADUATED_FROM", "graduated", "from"),
        ("WORKED_FOR", "worked works", "for at"),
        ("PLAYED_FOR", "played plays", "for"),
        ("WORKED_WITH", "worked works collaborated toured", "with"),
        ("SERVED", "served", "in on"),
        ("SIGNED", "signed", "to with"),
        ("MERGED_WITH", "merged", "with into"),
        ("MARRIED", "married", "to"),
        ("FLOWS_INTO", "flows empties drains", "into"),
        ("RUNS_ON", "runs run", "on"),
        ("RUNS_THROUGH", "runs flows passes", "through"),
        ("CONSISTS_OF", "consists consisted composed", "of"),
        ("DEPENDS_ON", "depends relies", "on upon"),
        ("CONNECTS_TO", "connects connected linked", "to with"),
        ("WRITES_TO", "writes", "to"),
        ("READS_FROM", "reads", "from"),
        ("LED_TO", "led", "to"),
        ("REPORTS_TO", "reports reported", "to"),
        ("ADJACENT_TO", "adjacent", "to"),
    )
    for verb in verbs.split()
    for preposition in (prepositions.split() if relation != "GREW_UP" else ["up in"])
}
"""Verbs whose preposition makes the relation."""

PARTICIPLES = PASSIVE.keys() | words(
    """
    born incorporated formed completed opened launched premiered held located situated based headquartered named
    known called renamed nicknamed educated enrolled signed merged connected linked consisting adjacent
    """
)
"""Forms that may follow a noun without an auxiliary, so that what they describe is less certain."""

BY_PLACE_OR_DATE = words(
    """
    BORN DIED FOUNDED BUILT RELEASED HELD LOCATED BASED APPEARED LIVED GREW_UP STUDIED SERVED SIGNED
    """
)
"""Relations whose name ends in `_ON` before a date and in `_IN` before anything else."""

ROLES = words(
    """
    capital son daughter wife husband widow brother sister father mother founder co-founder president director
    chairman chairwoman ceo author part member mayor governor king queen prime minister editor subsidiary
    successor predecessor suburb seat birthplace leader owner creator singer drummer guitarist captain coach
    headquarters home ally
    """
)
"""Nouns that open an apposition without an article ("Oslo, capital of Norway") or follow a possessive."""

VAGUE = words(
    """
    one some lot number kind type sort couple pair result case example way end time day year top bottom side
    middle front out all most many majority rest half version edition use lack series average total
    """
)
"""Nouns before "of" that relate nothing."""

SITES = words(
    """
    city town village hamlet river lake mountain island county district municipality commune suburb neighborhood
    neighbourhood community region province state country park school university college museum airport station
    church building stadium street bridge company place area parish township settlement castle theatre hotel
    hospital cemetery valley bay port
    """
)
"""Nouns that make "is a … in" a location."""

STOP = words(
    """
    of to in for from with by at on and or nor but not no never as than that which who whom when where while if
    into over under about after before between through during against without within among because since until is
    was are were be been being has have had do does did will would can could may might shall should must only
    nearly almost throughout across out off up down around along toward towards per via behind beyond like i he
    she it they we you
    """
)
"""Words that break the phrase between a verb and its object."""

RETRACTIONS = (
    r"\b(?:"
    r"not|never|no|nor|neither|none|nobody|without|cannot|deny|denies|denied|denying|"
    r"refus\w+|fail\w*|unlikely|unable|false|untrue|falsely|myth|hoax|fictitious|rumou?r\w*|"
    r"alleg\w+|reportedly|supposed\w*|purported\w*|hypothe\w+|suppose|imagine|if|whether|unless|"
    r"would|could|might|(?-i:may)|should|almost|nearly|hardly|barely|scarcely|rarely|seldom|"
    r"contrary|refut\w+|disput\w+|doubt\w*|plan(?:s|ned)? to|tr(?:y|ies|ied) to|want(?:s|ed)? to|"
    r"hop(?:es?|ed|ing)|propos\w+|claim\w*|instead of|rather than|speculat\w+|disprov\w+|"
    r"incorrect\w*|wrong(?:ly)?|mistaken\w*|unclear|no longer"
    r")\b|n['’]t\b|\?"
)
"""A regular expression of what makes a clause negated, hypothetical, hearsay or a question."""
