"""Word lists of English, in lower case: what starts a sentence without being a name, and what gives a type away."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the words of a list that is written as running text."""
    return frozenset(text.split())


FUNCTION_WORDS = words(
    """
    a about above according across additionally after afterwards again against all along also alternatively although
    am amid among an and another any are aren't around as at based be because becoming been before behind being
    below beneath beside besides between beyond born both built but by called can can't consequently could couldn't
    currently despite did didn't directed do does doesn't don't down during each earlier either especially
    established even eventually every except featuring few finally following for formerly founded from furthermore
    generally given had has have having he he's hence her here hers herself him himself his how however i i'm i've
    if in including indeed initially instead into is isn't it it's its itself joining just known later let let's
    like likewise located mainly making many maybe me meanwhile might more moreover most mostly must my myself named
    near neither never nevertheless no nonetheless nor not note now of off often on once one only onto or originally
    other otherwise our out over particularly per perhaps playing please previously primarily produced published
    recently regarding released see serving several shall she she's should similarly since situated so some
    sometimes soon starring still subsequently such taking than that that's the their theirs them themselves then
    there there's therefore these they they're this those though through throughout thus to today too toward towards
    typically under unless until up upon us using usually very via was wasn't we we're were weren't what when where
    whereas whether which while who whom whose why will with within without won't working would wouldn't written yet
    yesterday you you're your
    """
)
"""Words that never start a name, but for a quoted title."""

COMMON_WORDS = words(
    """
    a able about above academic accept access according acquired across acting action active actor actress acts
    actual adapted add added addition additional additionally administration administrative administratively adopted
    adult adults advice after afternoon afterwards again against age ago agree ahead aim air aircraft aired airline
    airport album albums all allow almost alone along alongside also alternatively although always am amid among
    amongst amount an ancient and anger animal animated announced annual another answer any anybody anyone anything
    anyway apart appear appearance appearances appeared appears apply appointed approach approximately are area
    areas aren't argue arm army around arrive art article artist artists as ask aspect assigned associated assume at
    attack attempt attention author available average avoid award awarded aware away baby back bad bag ball band
    banks bar base based basis be bear beat beautiful became because become becoming been before began begin
    beginning behavior behind being believe below beneath benefit beside besides best better between beyond big bit
    black blood blue board boat body book books border born both bottom box boy break bring broadcast brother brown
    build building built business but buy by call called calls came camp can can't capital care career carefully
    carry case cases cast catch cause census center central centre century certain certainly chance change changed
    character characters chart check chief child children choice choose church cities citizens city civil class
    clean clear clearly climate close closed club coach coast code cold collection college colonial color comedy
    coming comments commercial common commonly community company compared competed competition complete completed
    composed composer computer congratulations consequently consider considered consists construction contact
    contains content continental continue continued control copies cost could couldn't countries country county
    couple course cover covered covers create created creation credited crime critical critics cross current
    currently cut dark data date daughter day days deal dear death debt debut decades decide decided declared deep
    defined degree degrees delete dense department described design designated designed despite detail details
    developed development did didn't died different difficult dinner direct directed directly director disable
    discuss district division do doctor document does doesn't dog don't door double down draw dream dress drink
    drive drop dropped due during each earlier early earned east eastern easy eat economic edge edit edition editor
    educated education effect effort eight either elected election elections electric eleven else empty enable end
    ended enjoy enough ensure entered entire entity environmental episode episodes era especially established
    estimated even evening event events eventually ever every everybody everyone everything exactly example except
    executive expect experience explain explicit express extra eye face fact fail fall falls family famous far fast
    father fear feature featured features featuring feel female few fiction fictional field fifth figure fill film
    filming films final finally financial find finding fine finished fire first fish five fix floor flows fly focus
    followed following follows food football footballer for force forces foreign forget form formally format formed
    former formerly forms fort forward found founded founder founding four fourth franchise free friend friends from
    front frozen full fun function further furthermore future game games gas gave general generally generations get
    girl give given glass go goal goals god going gold gone good got government graduated grant graph great green
    ground group groups grow guess guest guide guitar guy had hair half hall hand happen happy hard has hat hate
    have having he he's head hear heart heat heavy held hello help hence her here hers herself hi hide high higher
    highest him himself his historic historical historically history hit holding home honorary hope horse host
    hosted hot hour house how however human hundred husband i i'm i've idea if imagine immediately import important
    improve in include included includes including incorporated increase indeed independence independent individuals
    industry influence information initially inside install instead institutions intended interest interesting
    international into introduced involved iron is island isn't issues it it's its itself job joined joining jump
    just keep key kid killed kind kinds king kitchen known label lake land language languages large largely larger
    largest last late later latitude laugh law lay lead leader leading league learn least leave led left leg legal
    length less let let's letter level lie lies lieutenant life light like likewise limited line list listed listen
    little live lived living load local located location locations long longest look lose lost lot love low lower
    lowest lyrics machine made magazine main mainly major majority make makes making man managed many mark market
    married maybe me mean meaning means meanwhile measure medal meet meeting member members men mention merged
    message metal method metropolitan mid middle might miles military milk million mind minister minute miss mistake
    mixed model modern moment money monster month months more moreover morning most mostly mother mountain mouth
    move moved movement movie moving much multi multiple municipality music musical musician must my myself name
    named names nation national native nature near nearby nearly necessary need needed neither network never
    nevertheless new news next nice night nine no nobody noise nominated non none nonetheless nor north northeast
    northern northwest not notable note noted nothing notice novel now nowadays number numerous obviously
    occasionally occurred ocean of off office official officially often ok old older oldest on once one only onto
    open opened opening operated operates opinion opportunity opposition or order orders organization origin
    original originally other others otherwise ought our out outside over overall own owned page pain painter pair
    paper parent park part particularly parts party passed passenger past pay peace people per performance performed
    perhaps period person personal phone photo pick picture piece pizza place placed plans play played player
    players playing plays please pleasure plus point policy political politician pop popular population portion
    position possible post power practice premiered prepare present president press pretty previous previously price
    primarily primary prince print prior prison private probably problem process produced producer production
    professional program project prominent promise promotion proper property protect prove provide provided provides
    province public published pull purpose push put quality quarter queen question quick quickly quiet quite quoted
    radio rail rain raise ran range rate rather re reach reached read ready real really reason receive received
    recent recently recognize record recorded recording records red reduce refer referred regarding region regional
    regions regular related relations release released religious remained remains remember remove renamed repeat
    replace replaced reply report representative represented request required research resolution respectively rest
    result retired return returned returning rich ride right rights ring rise risk river road rock role roles room
    round route rule rules run running runs rural sad safe said same save say scheduled schools science score scored
    sea search season seasons seat second section see seem seen selected self sell send senior sentence separate
    series served serves service services serving set seven seventh several shall shape share she she's shop short
    shortly should shoulder show shows shut sick side sign signed significant silence similar similarly simple
    simply since singer singing single singles sister sit site situated six sixth size skin sleep slow small smile
    smoke snow so social society sold solo some somebody someone something sometimes somewhere son song songs
    songwriter soon sorry sort sound source sources south southeast southern southwest speak special speed spend
    spent sport sports spring square stage stand star starred starring stars start started starting state states
    station status stay step still stop store story straight strange street stress strong structure student students
    studied studio stuff style subject subsequently succeeded success successful such suddenly suggest suit summary
    summer summers sun support supporters suppose sure surprise sweet system table take taken takes taking talk tall
    taste tea teach team teams television tell ten term terms territories territory test tests text than thank
    thanks that that's the their theirs them themselves then there there's therefore these they they're thing think
    third thirty this those though thousand three through throughout throw thus time times tip tired title titles to
    today together tomorrow tonight too took tool tooth top total touch toward towards town track tracks trade
    traditional train tree trip trouble true trust truth try turn twelve twenty twice twins two type types typically
    ugly unable under understand unfortunately unincorporated union united universe university unless unlike until
    up update upon urban us usage use used useful user using usually value values van variety various version
    versions very via victory video view village visit vocalist voice wait walk walking wall want war warm was wash
    wasn't watch water way we we're wear weather week weeks welcome well went were weren't west western wet what
    whatever when whenever where whereas wherever whether which while white who whole whom whose why wide wife will
    wind window winner winning winter winters wish with within without woman women won won't wonder wood word work
    worked working works world worldwide worry worse worst would wouldn't write writer writing written wrong wrote
    year years yes yesterday yet you you're young younger your zero
    """
)
"""Words that, alone and capitalised at the start of a sentence, are not names."""

ORGANIZATION_CUES = words(
    """
    academy agency airline airlines alliance army association authority band bank board brigade broadcasting
    brothers bureau cabinet church club co college commission committee company conference congregation congress
    consortium cooperative corp corporation corps council court department directorate division enterprises faculty
    federation fleet force forces foundation front fund gmbh government group guild holdings inc incorporated
    industries institute institution laboratories laboratory labs league library limited llc llp ltd ministry
    monastery museum navy newspaper observatory office orchestra organisation organization parliament partners
    partnership party plc police press productions publishing records regiment school secretariat seminary senate
    service services society software squadron studio studios syndicate synod systems team technologies theatre
    trust union university
    """
)
"""Nouns in a name that make it an organization."""

PLACE_CUES = words(
    """
    airport archipelago avenue basin bay beach borough bridge canal canyon cape castle cathedral cemetery city coast
    county creek dam desert district falls forest fort garden gardens glacier gorge gulf harbor harbour heights
    highway hill hills island islands isle kingdom lake lakes land mill mount mountain mountains oblast ocean palace
    park peninsula plateau port prefecture province railway region republic reservoir river road sea shire square
    stadium state states station strait street territory town valley village volcano
    """
)
"""Nouns at an end of a name that make it a place."""

GIVEN_NAMES = words(
    """
    aaron ada adam agnes ahmed alan albert alex alexander alfred ali alice amanda amy andre andrea andrew angela anna
    anne anthony antonio arthur barbara benjamin bernard bill bob brian bruce carl carlos carol caroline catherine
    charles charlotte chris christian christina christine christopher claire claude dan daniel david deborah dennis
    diana diane dmitri donald dorothy douglas edgar edith edmund edward eleanor elena elizabeth ella ellen emily
    emma eric erik ernest eugene eva evelyn fatima federico felix fernando francesco francis francisco frank franz
    fred frederick gary geoffrey george gerald gerard giovanni giuseppe gordon grace graham greg gregory guillermo
    gustav hannah hans harold harriet harry hassan heinrich helen henri henry herbert howard hugh ian igor irene
    isaac isabella ivan jack jacob jacques james jan jane janet jason jean jeff jeffrey jennifer jeremy jerry
    jessica jim joan joe johann john johnny jonathan jorge jose joseph joshua josé juan judith julia julian julie
    justin karen karl kate katherine keith kenneth kevin kim larry laura lawrence leo leon leonard lewis linda lisa
    louis louise lucas lucy luigi luis margaret maria marie mario mark martha martin mary matthew maurice max megan
    michael michel michelle miguel mike mohammed muhammad nancy natalie nathan nicholas nick nicolas nicole nikolai
    norman oliver olivia oscar otto pablo pamela patricia patrick paul pedro peter philip philippe pierre rachel
    ralph ray raymond rebecca richard robert roberto roger ronald rosa rose roy russell ruth ryan sam samuel sandra
    sara sarah scott sean sergei sharon simon sophia sophie stanley stefan stephen steve steven stuart susan ted
    teresa theodore thomas tim timothy tom tommy tony ursula victor victoria vincent vladimir walter wayne wilhelm
    william yuri zoe
    """
)
"""Common given names."""

PLACES = words(
    """
    afghanistan africa alabama alaska albania algeria america amsterdam angola antarctica argentina arizona arkansas
    armenia asia athens australia austria azerbaijan bahrain bangkok bangladesh barcelona beijing belarus belgium
    berlin bolivia bosnia boston botswana brazil brussels budapest bulgaria cairo california cambodia cameroon
    canada chicago chile china colombia colorado connecticut copenhagen croatia cuba cyprus dallas delaware delhi
    denmark dublin ecuador edinburgh egypt england eritrea estonia ethiopia europe fiji finland florida france
    geneva georgia germany ghana greece greenland guatemala haiti hamburg hawaii helsinki honduras houston hungary
    iceland idaho illinois india indiana indonesia iowa iran iraq ireland israel istanbul italy jamaica japan
    jerusalem jordan kansas kazakhstan kentucky kenya kosovo kuwait kyrgyzstan laos latvia lebanon lesotho liberia
    libya lisbon lithuania london louisiana luxembourg madagascar madrid maine malawi malaysia mali malta manchester
    maryland massachusetts mauritius melbourne mexico miami michigan milan minnesota mississippi missouri moldova
    monaco mongolia montana montenegro montreal morocco moscow mozambique mumbai munich myanmar namibia nebraska
    nepal netherlands nevada nicaragua niger nigeria norway ohio oklahoma oman oregon oslo pakistan palestine panama
    paraguay paris pennsylvania peru philadelphia philippines poland portugal prague qatar romania rome russia
    rwanda scotland seattle senegal seoul serbia shanghai singapore slovakia slovenia somalia spain stockholm sudan
    sweden switzerland sydney syria taiwan tajikistan tanzania tennessee texas thailand tokyo toronto tunisia turkey
    turkmenistan uganda ukraine uruguay utah uzbekistan vancouver venezuela vermont vienna vietnam virginia wales
    warsaw washington wisconsin wyoming yemen zambia zimbabwe
    """
)
"""Countries, states, continents and some large cities of one word."""

LONG_PLACES = frozenset(
    (
        "costa rica",
        "czech republic",
        "el salvador",
        "european union",
        "hong kong",
        "kuala lumpur",
        "los angeles",
        "new delhi",
        "new england",
        "new hampshire",
        "new jersey",
        "new mexico",
        "new york",
        "new york city",
        "new zealand",
        "north america",
        "north carolina",
        "north dakota",
        "north korea",
        "puerto rico",
        "rhode island",
        "rio de janeiro",
        "san diego",
        "san francisco",
        "saudi arabia",
        "south africa",
        "south america",
        "south carolina",
        "south dakota",
        "south korea",
        "soviet union",
        "sri lanka",
        "u s",
        "uk",
        "united kingdom",
        "united states",
        "united states of america",
        "us",
        "usa",
        "ussr",
        "west virginia",
    )
)
"""Identity keys of the same kind with several words, and short forms."""
